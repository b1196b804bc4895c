/* conv: convolution of 1 to 3 spatial dimensions, y = activation(conv(x, w) + bias + addend), float32.
 *
 * This file checks a call, chooses the algorithm ("way"), and divides the work over threads. Each way has its own file,
 * computes a part of one image and group, described by an ht_conv (conv.h), and never calls back into this file.
 *
 * in: x[N][C][spatial]; w[M][C / group][kernel], or packed:
 *     by pack_b with ints (group, K, M / group, 1), K = C / group * product(kernel); not where C == group and
 *       M / group <= HT_CONV_DEPTHWISE_MAPS, which takes plain weights;
 *     by pack_winograd (conv_winograd.c), for a 3x3 kernel without strides;
 *   bias[M] or NULL; addend (y's shape) or NULL. If w is by pack_winograd, two more: the original float32 weights as
 *   bytes (uint8), and scale[M] or NULL, by which they were multiplied before they were packed.
 * out: y[N][M][spatial]; overlaps no input.
 * ints: group, w_packed (0 plain, 1 by pack_b, else pack_winograd's m), activation (unary.h), then triples (spatial.h)
 *   kernel, strides, pads before, dilations. Pads after follow from y's shape: what lies outside x counts as zero.
 *   Optional: 1 if no weight is infinite or NaN, else 0 (the default).
 * floats: the activation's two parameters.
 * scratch: HT_CONV_SCRATCH bytes; with weights by pack_winograd at least what ht_conv_winograd_fits or
 *   ht_conv_dilated_fits asks for; with plain weights 4 * group * ceil(M / group / 16) * 16 * K bytes more, in which
 *   they are packed (not for depthwise and narrow).
 *
 * way        file              vectors run along      chosen
 * wide       conv_wide.c       pixels (im2col)        by estimated cost; fits every shape
 * direct     conv_direct.c     output channels        by estimated cost
 * rows       conv_rows.c       pixels of a row        by estimated cost
 * grouped    conv_grouped.c    output channels        by estimated cost; few channels
 * inside     conv_inside.c     output channels        by estimated cost; packed weights that are known to be finite
 * depthwise  conv_depthwise.c  pixels of a row        a group has one input channel, few output channels
 * narrow     conv_narrow.c     groups                 the same, small planes
 * winograd   conv_winograd.c   tiles                  weights by pack_winograd
 * dilated    conv_dilated.c    tiles                  the same, with dilations
 *
 * Division: a unit is a block of pixels times a chunk of output channels of one image and group (depthwise, narrow:
 * some groups of one image). Results do not depend on the division, and so not on the number of threads: each way
 * sums the products of an output in one order, most in the order channel, kernel position, in blocks of about HT_BLOCK_K.
 */
#include "conv.h"
#include "layouts.h"

#define TLB_FLOATS (64 * 1024) /* of 64 pages */

/* What each chunk of output channels repeats, in columns of HT_CONV_DIRECT_CHANNELS output channels: measured on 3x3
 * kernels of 64 to 512 channels, the input transforms take 0.3 (wide images) to 1 (narrow ones). */
#define TRANSFORM 0.5
#define COPY 0.25
/* What each block of pixels of WIDE repeats, in tiles of pixels: reading the weights. */
#define WEIGHTS 0.25
#define TILE_PIXELS (HT_TILE_PANELS * HT_PANEL)

enum { DEPTHWISE, NARROW, DIRECT, WIDE, ROWS, GROUPED, INSIDE, WINOGRAD, DILATED };

/* The cheapest of wide, direct, rows, grouped and inside, by estimated work in multiply-adds: the product, with columns padded to whole
 * panels, plus the data that each way moves. An element of im2col costs 6 and each row of it 100; an element of a copied
 * row costs 3; either costs 16 if the stride is above 2, because elements are then copied one by one. A transposed output
 * element costs 8. An input element read in place by a 1x1 kernel costs 6 for every tile's width of output channels if
 * a block of channels lies on more pages than the first-level TLB has entries. Inside copies an element for 6, and reads
 * a weight for 4. */
static int cheapest(const ht_conv *c)
{
    const int single = c->stride[2] > 2;
    const double pixels = (double)c->pixels, channels = (double)c->out_channels, k = (double)c->depth_k;
    const double padded_pixels = (double)(ht_ceil_div(c->pixels, HT_PANEL) * HT_PANEL);
    const double padded_channels = (double)(ht_ceil_div(c->out_channels, HT_PANEL) * HT_PANEL);
    const double padded_rows = (double)(c->out[0] * c->out[1] * ht_ceil_div(c->out[2], HT_PANEL) * HT_PANEL);
    const double sampled = (single ? 16 : 6) + (c->taps > 1 ? 100 / (double)c->out[2] : 0);
    double best = padded_pixels * channels * k + sampled * pixels * k;
    int way = WIDE;
    const int scattered = c->taps == 1 && !c->padded && c->in_plane == c->pixels &&
                          ht_min64(c->in_channels, HT_BLOCK_K) * c->in_plane > TLB_FLOATS;
    const double widths = (double)ht_ceil_div(c->out_channels, HT_CONV_DIRECT_CHANNELS);
    const double direct = pixels * padded_channels * k + 8 * pixels * channels + (scattered ? 6 * pixels * k * widths : 0);
    if (direct < best && ht_conv_direct_fits(c)) {
        best = direct;
        way = DIRECT;
    }
    const double rows = padded_rows * channels * k;
    if (rows < best && ht_conv_rows_fits(c) && rows + (single ? 16 : 3) * ht_conv_rows_copied(c) < best) {
        best = rows + (single ? 16 : 3) * ht_conv_rows_copied(c);
        way = ROWS;
    }
    const double grouped = pixels * padded_channels * k + 4 * pixels * channels;
    if (c->padded && grouped < best && ht_conv_grouped_fits(c)) { /* else direct copies nothing */
        best = grouped;
        way = GROUPED;
    }
    double products, weights;
    if (c->finite && c->padded && ht_conv_inside_fits(c, &products, &weights)) {
        const double chunks = (double)ht_ceil_div(c->out_channels, HT_CONV_INSIDE_CHANNELS);
        const double inside = (products + 4 * weights) * padded_channels * (double)c->in_channels + 8 * pixels * channels +
                              (single ? 16 : 6) * products * (double)c->in_channels * chunks;
        if (inside < best)
            way = INSIDE;
    }
    return way;
}

/* The whole call, divided into units (see the header). */
typedef struct {
    const ht_call *call;
    ht_conv image; /* of the first image and group */
    int way;
    int64_t tile;                  /* WINOGRAD, DILATED: 2 or 4 */
    int64_t group, w_group;
    int64_t groups;                /* DEPTHWISE, NARROW: groups of a unit */
    int64_t block_rows;            /* ROWS, GROUPED */
    int64_t columns;               /* whole tiles of output channels (DIRECT, INSIDE, WINOGRAD) or of pixels (WIDE) */
    int64_t blocks, chunks;        /* chunks: of output channels */
    int64_t units, parts;
} convolution;

/* DEPTHWISE, NARROW: computes one unit, which is some groups of one image. */
static void convolve_groups(const convolution *job, int64_t unit, float *scratch)
{
    const int64_t image = unit / job->blocks, first = unit % job->blocks * job->groups;
    const int64_t last = ht_min64(first + job->groups, job->group);
    ht_conv c = job->image;
    const int64_t y_at = image * job->group * c.out_channels * c.pixels;
    c.scratch = scratch;
    c.x += image * job->group * c.in_plane;
    c.addend = c.addend ? c.addend + y_at : NULL;
    c.y += y_at;
    (job->way == NARROW ? ht_conv_narrow : ht_conv_depthwise)(&c, first, last);
}

/* The first pixel of a block of WIDE. */
static int64_t first_pixel(const convolution *job, int64_t block)
{
    return ht_min64(ht_part_begin(job->columns, job->blocks, block) * TILE_PIXELS, job->image.pixels);
}

/* The first output channel of a chunk. */
static int64_t first_channel(const convolution *job, int64_t chunk)
{
    const int64_t column = ht_part_begin(job->columns, job->chunks, chunk);
    return ht_min64(column * HT_CONV_DIRECT_CHANNELS, job->image.out_channels);
}

static void convolve_unit(const convolution *job, int64_t unit, float *scratch)
{
    if (job->way == DEPTHWISE || job->way == NARROW) {
        convolve_groups(job, unit, scratch);
        return;
    }
    const int64_t chunk = unit % job->chunks, block = unit / job->chunks % job->blocks;
    const int64_t image = unit / job->chunks / job->blocks, g = image % job->group;
    ht_conv c = job->image;
    const int64_t y_at = image * c.out_channels * c.pixels;
    c.scratch = scratch;
    c.x += image * c.in_channels * c.in_plane;
    c.w += g * job->w_group;
    c.plain = c.plain ? c.plain + g * c.out_channels * c.depth_k * (int64_t)sizeof(float) : NULL;
    c.scale = c.scale ? c.scale + g * c.out_channels : NULL;
    c.bias = c.bias ? c.bias + g * c.out_channels : NULL;
    c.addend = c.addend ? c.addend + y_at : NULL;
    c.y += y_at;
    if (job->way == DILATED)
        ht_conv_dilated(&c, job->tile, block);
    else if (job->way == WINOGRAD)
        ht_conv_winograd(&c, job->tile, block, first_channel(job, chunk), first_channel(job, chunk + 1));
    else if (job->way == DIRECT)
        ht_conv_direct(&c, block, first_channel(job, chunk), first_channel(job, chunk + 1));
    else if (job->way == INSIDE)
        ht_conv_inside(&c, ht_part_begin(c.pixels, job->blocks, block), ht_part_begin(c.pixels, job->blocks, block + 1),
                       first_channel(job, chunk), first_channel(job, chunk + 1));
    else if (job->way == GROUPED)
        ht_conv_grouped(&c, job->block_rows, block);
    else if (job->way == ROWS)
        ht_conv_rows(&c, job->block_rows, block);
    else
        ht_conv_wide(&c, first_pixel(job, block), first_pixel(job, block + 1));
}

static void convolve_part(void *context, int64_t part, int thread)
{
    const convolution *job = (const convolution *)context;
    const int64_t end = ht_part_begin(job->units, job->parts, part + 1);
    for (int64_t unit = ht_part_begin(job->units, job->parts, part); unit < end && !ht_stopping(); unit++)
        convolve_unit(job, unit, (float *)ht_scratch(job->call, thread));
}

/* The number of chunks, at least `fewest`, for each of `blocks` blocks that takes the least time. `preparation`: what a
 * chunk costs apart from its columns, in columns. Among equals, more chunks: a thread that runs slowly then takes fewer. */
static int64_t best_chunks(const ht_call *call, int64_t blocks, int64_t columns, int64_t fewest, double preparation,
                           int64_t wanted)
{
    const int64_t threads = call->team ? ht_team_threads(call->team) : 1;
    const int64_t most = ht_min64(columns, ht_max64(fewest, ht_ceil_div(wanted, blocks)) + threads);
    int64_t best = fewest;
    double least = INFINITY;
    for (int64_t chunks = fewest; wanted > 1 && chunks <= most; chunks++) {
        const double time = (double)ht_ceil_div(blocks * chunks, threads) * (preparation + (double)columns / (double)chunks);
        if (time <= least * 1.001) {
            least = time;
            best = chunks;
        }
    }
    return best;
}

/* Divides into blocks and chunks: the best sizes for one thread, reduced if there are too few for all threads. */
static void divide(convolution *job, int64_t batch, double cost)
{
    const ht_conv *c = &job->image;
    const int64_t parts_wanted = ht_wanted(job->call, cost), images = batch * job->group;
    job->blocks = job->chunks = 1;
    if (job->way == DEPTHWISE || job->way == NARROW) {
        const int64_t step = job->way == NARROW ? VF_LANES : 1, steps = ht_ceil_div(job->group, step);
        job->groups = ht_ceil_div(steps, ht_min64(steps, ht_ceil_div(parts_wanted, batch))) * step;
        job->blocks = ht_ceil_div(job->group, job->groups);
        job->units = batch * job->blocks;
        job->parts = ht_parts(job->call, job->units, cost);
        return;
    }
    if (job->way == WIDE) {
        job->columns = ht_ceil_div(c->pixels, TILE_PIXELS);
        job->blocks = best_chunks(job->call, images, job->columns, ht_ceil_div(job->columns, HT_BLOCK_N / TILE_PIXELS),
                                  WEIGHTS, parts_wanted);
    } else if (job->way == DILATED) {
        job->blocks = c->dilation[1] * c->dilation[2];
    } else if (job->way == GROUPED) {
        const int64_t share = ht_ceil_div(images * c->out[1], parts_wanted);
        job->block_rows = ht_conv_grouped_rows(c, ht_min64(share, c->out[1]));
        job->blocks = ht_ceil_div(c->out[1], job->block_rows);
    } else if (job->way == ROWS) {
        const int64_t share = ht_ceil_div(images * c->out[0] * c->out[1], parts_wanted);
        job->block_rows = ht_conv_rows_block(c, ht_min64(share, c->out[1]));
        job->blocks = c->out[0] * ht_ceil_div(c->out[1], job->block_rows);
    } else if (job->way == INSIDE) {
        enum { LEAST = 64 }; /* pixels of a block: fewer would make reading the weights costly */
        const int64_t fewest = ht_ceil_div(c->out_channels, HT_CONV_INSIDE_CHANNELS);
        job->columns = ht_ceil_div(c->out_channels, HT_CONV_DIRECT_CHANNELS);
        job->chunks = best_chunks(job->call, images * ht_ceil_div(c->pixels, LEAST), job->columns, fewest, COPY, parts_wanted);
        const int64_t channels = ht_ceil_div(job->columns, job->chunks) * HT_CONV_DIRECT_CHANNELS;
        const int64_t wanted = ht_ceil_div(parts_wanted, images * job->chunks);
        job->blocks = ht_max64(ht_ceil_div(c->pixels, ht_conv_inside_pixels(channels)),
                               ht_min64(wanted, ht_ceil_div(c->pixels, LEAST)));
    } else {
        job->blocks = job->way == DIRECT ? ht_conv_direct_blocks(c) : ht_conv_winograd_blocks(c, job->tile);
        const double preparation = job->way == WINOGRAD ? TRANSFORM : ht_conv_direct_copies(c) ? COPY : 0;
        job->columns = ht_ceil_div(c->out_channels, HT_CONV_DIRECT_CHANNELS);
        job->chunks = best_chunks(job->call, images * job->blocks, job->columns, 1, preparation,
                                  parts_wanted);
    }
    job->units = images * job->blocks * job->chunks;
    job->parts = ht_parts(job->call, job->units, cost);
}

int HT_KERNEL(conv)(const ht_call *call)
{
    if (call->num_in < 2 || call->num_out != 1 || call->num_floats != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *w = call->in[1], *y = call->out[0];
    const ht_tensor *bias = call->num_in > 2 ? call->in[2] : NULL, *addend = call->num_in > 3 ? call->in[3] : NULL;
    ht_window shapes;
    if (call->num_ints < 15 || call->num_ints > 16 || !ht_window_shapes(&shapes, x, y))
        return HT_ERR_OPERAND;
    if (x->dtype != HT_FLOAT32 || w->dtype != HT_FLOAT32 || y->dtype != HT_FLOAT32)
        return HT_ERR_DTYPE;
    const int64_t group = call->ints[0], batch = shapes.n, channels = shapes.c, maps = y->dims[1];
    const int64_t w_packed = call->ints[1], winograd = w_packed > 1 ? w_packed : 0;
    if (group < 1 || channels % group || maps % group || y->dims[0] != batch)
        return HT_ERR_OPERAND;

    ht_conv c = {.in_channels = channels / group, .out_channels = maps / group, .taps = 1,
                 .in_plane = shapes.in_size, .pixels = shapes.out_size,
                 .activation = (int)call->ints[2], .p0 = (float)call->floats[0], .p1 = (float)call->floats[1],
                 .scratch = call->scratch};
    ht_unary_clip_range(c.activation, c.p0, c.p1, &c.low, &c.high);
    for (int d = 0; d < 3; d++) {
        c.in[d] = shapes.in[d];
        c.out[d] = shapes.out[d];
        c.kernel[d] = call->ints[3 + d];
        c.stride[d] = call->ints[6 + d];
        c.pad[d] = call->ints[9 + d];
        c.dilation[d] = call->ints[12 + d];
        if (c.kernel[d] < 1 || c.stride[d] < 1 || c.dilation[d] < 1 || c.pad[d] < 0)
            return HT_ERR_OPERAND;
        c.taps *= c.kernel[d];
        c.padded |= c.pad[d] > 0 ||
                    (c.out[d] - 1) * c.stride[d] + (c.kernel[d] - 1) * c.dilation[d] >= c.in[d];
    }
    c.depth_k = c.in_channels * c.taps;
    if (y->size == 0)
        return HT_OK;
    c.finite = w_packed == 1 && call->num_ints > 15 && call->ints[15] == 1;
    const int64_t packed_group =
        winograd ? ht_winograd_floats(c.in_channels, c.out_channels, winograd) : ht_panel_floats(c.depth_k, c.out_channels);
    const int dilated = c.dilation[1] > 1 || c.dilation[2] > 1;
    if (winograd && !(dilated ? ht_conv_dilated_fits : ht_conv_winograd_fits)(&c, winograd, call->scratch_bytes))
        return HT_ERR_OPERAND;
    if (w->size != (w_packed ? group * packed_group : maps * c.depth_k) || (bias && bias->size != maps) ||
        (addend && addend->size != y->size))
        return HT_ERR_OPERAND;
    if ((bias && bias->dtype != HT_FLOAT32) || (addend && addend->dtype != HT_FLOAT32))
        return HT_ERR_DTYPE;
    if (winograd) {
        const ht_tensor *plain = call->num_in > 4 ? call->in[4] : NULL, *scale = call->num_in > 5 ? call->in[5] : NULL;
        if (!plain || plain->size != maps * c.depth_k * (int64_t)sizeof(float) || (scale && scale->size != maps))
            return HT_ERR_OPERAND;
        if (plain->dtype != HT_UINT8 || (scale && scale->dtype != HT_FLOAT32))
            return HT_ERR_DTYPE;
        c.plain = (const char *)plain->data;
        c.scale = scale ? (const float *)scale->data : NULL;
    }

    const int depthwise = !w_packed && c.out_channels <= HT_CONV_DEPTHWISE_MAPS && ht_conv_depthwise_fits(&c);
    const int packs = !w_packed && !depthwise && packed_group > 0;
    if (call->scratch_bytes < (packs ? ht_scratch_conv_packing(group, c.out_channels, c.depth_k) : HT_CONV_SCRATCH))
        return HT_ERR_OPERAND;
    const float *weights = w->data;
    if (packs) {
        float *packed = (float *)((char *)call->scratch + HT_CONV_SCRATCH);
        for (int64_t g = 0; g < group; g++)
            ht_pack_panels((const float *)w->data + g * c.out_channels * c.depth_k, c.depth_k, 1, c.depth_k,
                           c.out_channels, packed + g * packed_group, c.depth_k);
        weights = packed;
    }
    const int64_t w_group = depthwise ? c.taps * c.out_channels : packed_group;
    c.x = (const float *)x->data;
    c.w = weights;
    c.bias = bias ? (const float *)bias->data : NULL;
    c.addend = addend ? (const float *)addend->data : NULL;
    c.y = (float *)y->data;
    convolution job = {.call = call, .image = c, .group = group, .w_group = w_group};
    if (winograd) {
        job.way = dilated ? DILATED : WINOGRAD;
        job.tile = winograd;
    } else if (depthwise)
        job.way = ht_conv_narrow_is_better(&c, group) ? NARROW : DEPTHWISE;
    else
        job.way = c.in_channels > 0 ? cheapest(&c) : WIDE; /* the others divide by the number of channels */
    divide(&job, batch, (double)y->size * (double)c.depth_k);
    ht_parallel(call->team, job.parts, convolve_part, &job);
    return HT_OK;
}
