/* conv: convolution of 1 to 3 spatial dimensions, float32:
 *   y = activation(conv(x, w) + bias + addend) * after_scale + after_shift + late.
 *
 * This file checks a call, chooses the algorithm ("way"), and divides the work over threads. Each way has its own file,
 * computes a part of one image and group, described by an ht_conv (conv.h), and never calls back into this file.
 *
 * in:
 *   x[N][C][spatial];
 *   w[M][C / group][kernel], or packed weights:
 *     - pack_b with ints (group, K, M / group, 1), where K = C / group * product(kernel). Depthwise convolutions
 *       (C == group and M / group <= HT_CONV_DEPTHWISE_MAPS) take plain weights instead;
 *     - pack_parts (gemm.c) with ints (group, K, M / group, 1, 1), if K > 0 and the instruction set has tiles;
 *     - pack_winograd (conv_winograd.c), for a 3x3 kernel without strides and dilations;
 *   bias[M] or NULL;
 *   addend (y's shape) or NULL;
 *   two operands that are read only if w is by pack_winograd: the original float32 weights as bytes (uint8), and the
 *     scale[M] by which they were multiplied before packing, or NULL;
 *   after_scale[M] or NULL; after_shift[M] or NULL; late (y's shape) or NULL.
 *   Operands at the end may be left out.
 * out: y[N][M][spatial]; overlaps no input.
 * ints:
 *   group;
 *   w_packed: 0 plain, 1 pack_b, 3 pack_parts, otherwise pack_winograd's m;
 *   activation (unary.h);
 *   triples (spatial.h) of kernel, strides, pads before, dilations. y's shape determines the pads after: everything
 *     outside x counts as zero;
 *   optional, whether the weights are finite: 0 (the default): unknown. 1: they are. 2: they are, but the way is chosen as
 *     for 0, so that both give the same results.
 * floats: the activation's two parameters.
 * If ht_conv_tiled says so, products are of tiles (tiled_product.h), which read plain weights in place. All other ways
 * pack plain weights first.
 * scratch: HT_CONV_SCRATCH bytes. With weights by pack_winograd, at least the bytes that ht_conv_winograd_fits requires.
 *   Plain weights that are packed take 4 * group * ceil(M / group / 16) * 16 * K bytes more; depthwise and narrow pack
 *   nothing.
 *
 * way        file              vectors run along      chosen
 * wide       conv_wide.c       pixels (im2col)        by estimated cost, or with tiles; fits every shape
 * direct     conv_direct.c     output channels        by estimated cost
 * rows       conv_rows.c       pixels of a row        by estimated cost
 * grouped    conv_grouped.c    output channels        by estimated cost; few channels
 * inside     conv_inside.c     output channels        by estimated cost; packed weights that are known to be finite
 * depthwise  conv_depthwise.c  pixels of a row        a group has one input channel, few output channels
 * square     conv_square.c     pixels of a row        by depthwise: 3x3 and 5x5 kernels, strides 1 and 2
 * narrow     conv_narrow.c     groups                 as depthwise, small planes
 * row        gemv.c            output channels        one output pixel, whose window is the whole input
 * winograd   conv_winograd.c   tiles                  weights by pack_winograd
 *
 * Division: a unit is a block of pixels times a chunk of output channels, of one image and group. Exceptions:
 *   - depthwise, narrow: some groups of one image;
 *   - row: a chunk;
 *   - wide with few pixels: a term of the sums times a chunk;
 *   - rows, grouped: a strip of an image's only output row times a chunk;
 *   - winograd: a block of tiles. All threads share the last blocks, dividing each by input channels, then by output
 *     channels;
 *   - with tiles, a chunk may begin and end within a group of channels (ht_conv_span).
 * Units are in the order of their channels, so that a thread writes whole rows of the result: if two threads write the
 * same row, the prefetcher of each takes lines from the other.
 *
 * Results do not depend on the division, and therefore not on the number of threads. All ways except row and Winograd add
 * up the products of an output in the order channel, kernel position, in blocks whose length depends on the way alone. The
 * sums of row and Winograd do not depend on the division either.
 */
#include "blocks.h"
#include "conv.h"
#include "gemm_product.h"
#include "layouts.h"
#include "tiled_product.h"

#define TLB_FLOATS (64 * 1024) /* of 64 pages */

/* Costs of DIRECT, in columns of HT_CONV_DIRECT_CHANNELS output channels: the copies that each chunk repeats, and what it
 * loses because its last tile is narrow. */
#define COPY 0.25
#define NARROW_TILES 0.1
/* Each block of pixels of WIDE reads the weights again: the cost of that in tiles of pixels. */
#define WEIGHTS 0.25
#define TILE_PIXELS (HT_TILE_PANELS * HT_PANEL)
#define WIDE_PIXELS (HT_QUADS ? 3 * VF_LANES : TILE_PIXELS) /* of a tile of WIDE */
/* Time of a multiply-add in the tiles of other ways, relative to wide's tiles of packed weights (HT_QUADS). Measured.
 * PLAIN_TILES: direct, 1x1 kernels. STEPPED_TILES: direct and rows, other kernels, with AVX-512. It applies from
 * STEPPED_PIXELS and STEPPED_CHANNELS on; with fewer, wide loses as much by reading weights and by im2col. */
#define PLAIN_TILES 1.06
#define STEPPED_TILES 1.15
#define STEPPED_PIXELS 192
#define STEPPED_CHANNELS 96
/* Time of a multiply-add of ROW, relative to other ways: ROW reads each weight for a single multiply-add. */
#define READING 2
/* Cost of a pixel that passes between the caches of two threads, in multiply-adds per k, for each chunk of WIDE. */
#define FOREIGN 13

/* Costs in multiply-adds: ADDING for adding a term to a sum, REGION for one more region of the team (1 µs). With AVX2
 * measured on chains of 1x1 convolutions whose threads share a cache, otherwise estimated. */
#define ADDING (HT_QUADS ? 14 : 2)
#define REGION 60000
#define MOST_TERMS 16 /* of a sum that is divided by terms */

#define AS_CHEAP 0.97 /* where the estimates of both forms differ by less, joined rows were faster */
#define DEPTHWISE_JOINED (16 * VF_LANES) /* pixels of a plane: in shorter joined rows, the last tile is often small */

enum { DEPTHWISE, NARROW, DIRECT, WIDE, ROWS, GROUPED, INSIDE, ROW, WINOGRAD };

/* ht_in_tiles for wide. With AVX2, its tiles of packed weights are narrower: see gemm_packed in gemm_micro.c. A single
 * vector of pixels has too few sums to hide the latency of multiply-adds, and so has the rest of one panel of output
 * channels. */
static double in_wide_tiles(int64_t pixels, int64_t channels)
{
    if (!HT_QUADS)
        return ht_in_tiles(pixels);
    const int64_t left = pixels % VF_LANES, rest = left <= 2 ? left : left <= 4 ? 4 : 0;
    const int64_t whole = pixels - left + (left <= 4 ? 0 : VF_LANES);
    const int64_t rows = ht_ceil_div(channels, HT_PANEL) * HT_PANEL;
    return (double)(whole == VF_LANES ? 2 * whole : whole) +
           (rest > 0 ? (double)ht_max64(rest * rows, 4 * HT_PANEL) / (double)channels : 0);
}

/* Time of a multiply-add in the tiles of direct (with AVX-512 also of rows), relative to wide's. Measured; 1 for flat
 * kernels. With AVX2, tiles read the input from the L2 cache again for each panel of weights, which costs most with
 * strides, and a tile of less than four pixels has too few sums to hide the latency of multiply-adds. */
static double stepped_tiles(const ht_conv *c)
{
    if (ht_conv_flat(c) || !HT_QUADS)
        return 1;
    if (HT_CONV_VECTORS)
        return c->pixels >= STEPPED_PIXELS && c->out_channels >= STEPPED_CHANNELS ? STEPPED_TILES : 1;
    const double pixels = (double)c->out[2] / (double)ht_ceil_div(c->out[2], HT_TILE_ROWS); /* of a tile */
    return (c->stride[2] == 1 ? 1.08 : 1.2) * fmax(1, 4 / pixels);
}

/* Cost of an element of im2col in wide, in multiply-adds. With AVX-512, measured on an AMD EPYC (Zen 4) over 700 shapes: a
 * vector of pixels takes one or two loads for each of its rows, or a gather if the stride exceeds 2. */
static double sampling(const ht_conv *c)
{
    if (ht_conv_flat(c))
        return 6;
    if (HT_CONV_VECTORS)
        return c->stride[2] > 2 ? 30 : 6 + (c->stride[2] == 2 ? 6.5 : 4) * (1 + VF_LANES / (double)c->out[2]);
    if (ht_conv_points(c))
        return 4 * VF_LANES;
    return (c->stride[2] > 2 ? 16 : 6) + 16 * VF_LANES / (double)c->out[2];
}

/* The cheapest of wide, direct, rows, grouped and inside, by estimated work in multiply-adds: the product, with columns in
 * tiles, plus the data that each way moves:
 *   - an element of im2col, or of the pixels that direct copies for a 1x1 kernel with strides: `sampling`;
 *   - an element of a copied row: 3, or 16 if the stride exceeds 2, because elements are then copied one by one;
 *   - an output element: 8 if it is transposed, 4 by grouped, 6 by rows with stride 1 (measured over 430 shapes of few
 *     channels);
 *   - an input element that is read in place: 6 for each tile's width of output channels, if a block of channels lies on
 *     more pages than the first-level TLB has entries;
 *   - inside: 6 or 16 for a copied element, 4 for a weight.
 * For a 1x1 kernel that reads its input in place, wide's quads are faster than rows. may_skip: products of padding may be
 * left out, as inside does. *cost receives the estimate. */
static int cheapest(const ht_conv *c, int may_skip, double *cost)
{
    const double pixels = (double)c->pixels, channels = (double)c->out_channels, k = (double)c->depth_k;
    const double padded_pixels = in_wide_tiles(c->pixels, c->out_channels), padded_channels = ht_in_tiles(c->out_channels);
    const double padded_rows = (double)(c->out[0] * c->out[1]) * ht_in_tiles(c->out[2]);
    double best = padded_pixels * channels * k + sampling(c) * pixels * k;
    int way = WIDE;
    const int flat = ht_conv_flat(c);
    const int in_place = flat || !ht_conv_direct_copies(c);
    const int scattered = in_place && ht_min64(c->in_channels, HT_BLOCK_K / c->taps) * c->in_plane > TLB_FLOATS;
    const double widths = (double)ht_ceil_div(c->out_channels, HT_CONV_DIRECT_CHANNELS);
    const double stepped = stepped_tiles(c);
    const double kept = ht_conv_direct_kept(c);
    const double direct = pixels * padded_channels * k * kept * (HT_QUADS && flat ? PLAIN_TILES : stepped) +
                          8 * pixels * channels + (scattered ? 6 * pixels * (double)c->in_channels * widths : 0) +
                          (c->taps == 1 && !flat ? sampling(c) * pixels * k : 0);
    if (direct < best && ht_conv_direct_fits(c)) {
        best = direct;
        way = DIRECT;
    }
    const double rows = padded_rows * channels * k * (HT_CONV_VECTORS ? stepped : 1) +
                        (c->stride[2] == 1 ? 6 * pixels * channels : 0);
    if (rows < best && !(HT_QUADS && flat) && ht_conv_rows_fits(c) && rows + ht_conv_rows_moved(c) < best) {
        best = rows + ht_conv_rows_moved(c);
        way = ROWS;
    }
    const double grouped = pixels * (double)ht_conv_grouped_columns(c) * k * kept + 4 * pixels * channels;
    if (c->padded && grouped < best && ht_conv_grouped_fits(c) && /* else direct copies nothing */
        grouped + ht_conv_grouped_moved(c) < best) {
        best = grouped + ht_conv_grouped_moved(c);
        way = GROUPED;
    }
    double products, weights;
    if (may_skip && c->padded && ht_conv_inside_fits(c, &products, &weights)) {
        const double chunks = (double)ht_ceil_div(c->out_channels, HT_CONV_INSIDE_CHANNELS);
        const double inside = (products + 4 * weights) * padded_channels * (double)c->in_channels + 8 * pixels * channels +
                              (c->stride[2] > 2 ? 16 : 6) * products * (double)c->in_channels * chunks;
        if (inside < best) {
            best = inside;
            way = INSIDE;
        }
    }
    *cost = best;
    return way;
}

/* The whole call, divided into units (see the header). */
typedef struct {
    const ht_call *call;
    ht_conv image; /* of the first image and group */
    int way;
    int64_t tile;                  /* WINOGRAD: 2 or 4 */
    int64_t group, w_group;
    int64_t step;                  /* DEPTHWISE, NARROW: blocks are multiples of so many groups */
    int64_t block_rows;            /* ROWS, GROUPED */
    int64_t bands;                 /* DIRECT: if not 0, blocks are this many bands of output rows */
    int64_t grain, columns;        /* DIRECT, GROUPED, INSIDE, ROWS, ROW, WIDE: columns of `grain` output channels */
    int64_t pixel_grain;           /* WIDE: blocks are multiples of so many pixels */
    int64_t strips;                /* ROWS, GROUPED: if not 0, blocks are this many strips of the only output row */
    int64_t blocks, chunks;        /* chunks: of output channels */
    int64_t units, parts;
    int64_t terms;                 /* WIDE: if not 0, units are terms of sums (ht_conv_wide_terms) times chunks */
    int64_t shared;                /* WINOGRAD: blocks after the units that all threads share, at most one per thread */
} convolution;

static const float *moved(const float *p, int64_t distance) { return p ? p + distance : NULL; }

/* Moves y and the operands of its shape. */
static void move_results(ht_conv *c, int64_t distance)
{
    c->addend = moved(c->addend, distance);
    c->late = moved(c->late, distance);
    c->y += distance;
}

/* Moves the operands with a number per output channel. */
static void move_channels(ht_conv *c, int64_t channels)
{
    c->scale = moved(c->scale, channels);
    c->bias = moved(c->bias, channels);
    c->after_scale = moved(c->after_scale, channels);
    c->after_shift = moved(c->after_shift, channels);
}

/* DEPTHWISE, NARROW: computes one unit, which is some groups of one image. */
static void convolve_groups(const convolution *job, int64_t unit, float *scratch)
{
    const int64_t image = unit / job->blocks, block = unit % job->blocks, steps = ht_ceil_div(job->group, job->step);
    const int64_t first = ht_part_begin(steps, job->blocks, block) * job->step;
    const int64_t last = ht_min64(ht_part_begin(steps, job->blocks, block + 1) * job->step, job->group);
    ht_conv c = job->image;
    c.scratch = scratch;
    c.x += image * job->group * c.in_plane;
    move_results(&c, image * job->group * c.out_channels * c.pixels);
    (job->way == NARROW ? ht_conv_narrow : ht_conv_depthwise)(&c, first, last);
}

/* The first pixel of a block of WIDE. */
static int64_t first_pixel(const convolution *job, int64_t block)
{
    const int64_t pixels = job->image.pixels, columns = ht_ceil_div(pixels, job->pixel_grain);
    return ht_min64(ht_part_begin(columns, job->blocks, block) * job->pixel_grain, pixels);
}

/* The first output channel of a chunk. */
static int64_t first_channel(const convolution *job, int64_t chunk)
{
    const int64_t column = ht_part_begin(job->columns, job->chunks, chunk);
    return ht_min64(column * job->grain, job->image.out_channels);
}

/* The convolution of one image and group. */
static ht_conv convolution_of(const convolution *job, int64_t image, float *scratch)
{
    const int64_t g = image % job->group;
    ht_conv c = job->image;
    c.scratch = scratch;
    c.x += image * c.in_channels * c.in_plane;
    c.w += g * job->w_group;
    c.plain = c.plain ? c.plain + g * c.out_channels * c.depth_k * (int64_t)sizeof(float) : NULL;
    move_channels(&c, g * c.out_channels);
    move_results(&c, image * c.out_channels * c.pixels);
    return c;
}

/* Output channels [m0, m1) of a convolution with packed weights, as a convolution of their own. m0: a multiple of
 * HT_PANEL, or of HT_TILED_GROUP with weights by pack_parts. */
static ht_conv channels_of(const ht_conv *c, int64_t m0, int64_t m1)
{
    ht_conv some = *c;
    some.out_channels = m1 - m0;
    some.w += c->has_parts ? ht_parts_floats(c->depth_k, m0) : m0 * c->depth_k;
    move_channels(&some, m0);
    move_results(&some, m0 * c->pixels);
    return some;
}

/* ROW: output channels [m0, m1) of the only pixel, from all elements of x in their order. */
static void convolve_row(const ht_conv *c, int64_t m0, int64_t m1)
{
    const ht_gemm_product p = {.a = c->x, .a_k = 1, .b = c->w, .b_packed = 1, .y = c->y, .m = 1, .n = c->out_channels,
                               .k = c->depth_k, .rows = 1,
                               .epilogue = {.bias = c->bias, .bias_col = 1, .addend = c->addend, .alpha = 1, .beta = 1,
                                            .low = c->low, .high = c->high}};
    ht_gemv_packed(&p, m0, m1);
    if (!ht_conv_is_final(c))
        ht_conv_finish_channels(c, m0, m1);
}

/* Output rows [first, last) of a convolution of one plane that copies its inputs (DIRECT). */
static ht_conv band_of(const ht_conv *c, int64_t first, int64_t last)
{
    ht_conv band = *c;
    band.out[1] = last - first;
    band.pad[1] -= first * c->stride[1]; /* may be negative */
    move_results(&band, first * c->out[2]);
    return band;
}

/* ROWS, GROUPED: a strip of the only output row. */
static ht_conv strip_of(const convolution *job, const ht_conv *c, int64_t strip)
{
    const int64_t columns = ht_ceil_div(c->out[2], TILE_PIXELS);
    const int64_t first = ht_part_begin(columns, job->strips, strip) * TILE_PIXELS;
    const int64_t last = ht_part_begin(columns, job->strips, strip + 1) * TILE_PIXELS;
    ht_conv some = *c;
    some.out[2] = ht_min64(last, c->out[2]) - first;
    some.pad[2] -= first * c->stride[2]; /* may be negative */
    move_results(&some, first);
    return some;
}

/* WIDE with tiles: where chunk `chunk` of a block of pixels begins (ht_conv_span). All chunks multiply about as many tiles.
 * A group is two rows or columns of tiles; the last group may be one. */
HT_INLINE void begin_chunk(const convolution *job, int64_t chunk, int64_t pixels, int64_t *m, int64_t *p)
{
    enum { HALF = HT_TILED_GROUP / 2 };
    const int64_t tall = ht_ceil_div(job->image.out_channels, HALF), wide = ht_ceil_div(pixels, HALF);
    const int64_t at = ht_part_begin(tall * wide, job->chunks, chunk), group = at / (2 * wide);
    const int64_t halves = ht_max64(1, ht_min64(2, tall - 2 * group)), left = at - group * 2 * wide;
    *m = group * HT_TILED_GROUP;
    *p = (left + halves) / (2 * halves) * HT_TILED_GROUP; /* rounded; left <= halves * wide */
    if (*p >= pixels) {
        *m += HT_TILED_GROUP;
        *p = 0;
    }
    *m = ht_min64(*m, job->image.out_channels);
}

static void convolve_span(const convolution *job, const ht_conv *c, int64_t block, int64_t chunk)
{
#if HT_TILES
    ht_conv_span span = {.begin = first_pixel(job, block), .end = first_pixel(job, block + 1)};
    begin_chunk(job, chunk, span.end - span.begin, &span.m0, &span.p0);
    begin_chunk(job, chunk + 1, span.end - span.begin, &span.m1, &span.p1);
    span.p0 += span.begin;
    span.p1 += span.begin;
    if (span.m0 == span.m1) {
        span.begin = span.p0;
        span.end = span.p1;
    }
    ht_conv_wide_tiled(c, &span);
#else
    (void)job, (void)c, (void)block, (void)chunk;
#endif
}

static void convolve_direct(const convolution *job, const ht_conv *c, int64_t block, int64_t m0, int64_t m1)
{
    if (job->bands == 0) {
        ht_conv_direct(c, block, m0, m1);
        return;
    }
    const int64_t first = ht_part_begin(c->out[1], job->bands, block);
    const ht_conv band = band_of(c, first, ht_part_begin(c->out[1], job->bands, block + 1));
    ht_conv_direct(&band, 0, m0, m1);
}

/* DIRECT: the weights with which the next unit begins, for prefetching, if they may have left the cache. -1: unknown. */
static void expect_weights(const convolution *job, int64_t unit, int64_t following, ht_conv *c)
{
    enum { KEPT = 64 * 1024 }; /* floats that stay in the L2 cache */
    if (following < 0)
        return;
    const int64_t chunk = following / job->blocks % job->chunks, m = first_channel(job, chunk);
    const int64_t channels = first_channel(job, chunk + 1) - m;
    const float *w = convolution_of(job, following / job->chunks / job->blocks, NULL).w;
    if (w == c->w && chunk == unit / job->blocks % job->chunks && channels * c->depth_k <= KEPT)
        return;
    c->next = w + m * c->depth_k;
    c->next_panels = ht_min64(ht_ceil_div(channels, HT_PANEL), HT_TILE_PANELS);
}

/* following: the unit that this thread probably computes next, or -1. */
static void convolve_unit(const convolution *job, int64_t unit, int64_t following, float *scratch)
{
    if (job->way == DEPTHWISE || job->way == NARROW) {
        convolve_groups(job, unit, scratch);
        return;
    }
    const int64_t block = unit % job->blocks, chunk = unit / job->blocks % job->chunks;
    ht_conv c = convolution_of(job, unit / job->chunks / job->blocks, scratch);
    if (job->way == DIRECT)
        expect_weights(job, unit, following, &c);
    if (job->way == WINOGRAD)
        ht_conv_winograd(&c, job->tile, block);
    else if (job->way == DIRECT)
        convolve_direct(job, &c, block, first_channel(job, chunk), first_channel(job, chunk + 1));
    else if (job->way == INSIDE)
        ht_conv_inside(&c, ht_part_begin(c.pixels, job->blocks, block), ht_part_begin(c.pixels, job->blocks, block + 1),
                       first_channel(job, chunk), first_channel(job, chunk + 1));
    else if (job->way == ROW)
        convolve_row(&c, first_channel(job, chunk), first_channel(job, chunk + 1));
    else if (c.tiled)
        convolve_span(job, &c, block, chunk);
    else {
        ht_conv some = channels_of(&c, first_channel(job, chunk), first_channel(job, chunk + 1));
        if (job->strips)
            some = strip_of(job, &some, block);
        const int64_t rows = job->strips ? 0 : block;
        if (job->way == GROUPED)
            ht_conv_grouped(&some, job->block_rows, rows);
        else if (job->way == ROWS)
            ht_conv_rows(&some, job->block_rows, rows);
        else
            ht_conv_wide(&some, first_pixel(job, block), first_pixel(job, block + 1));
    }
}

static void convolve_part(void *context, int64_t part, int thread)
{
    const convolution *job = (const convolution *)context;
    const int64_t end = ht_part_begin(job->units, job->parts, part + 1);
    for (int64_t unit = ht_part_begin(job->units, job->parts, part); unit < end && !ht_stopping(); unit++)
        convolve_unit(job, unit, ht_next_unit(job->units, job->parts, part, unit, thread),
                      (float *)ht_scratch(job->call, thread));
}

/* WIDE by terms: the first term that thread `thread` probably computes. Its scratch memory holds the sums of these terms. */
static int64_t first_term(const convolution *job, int64_t thread)
{
    return ht_part_begin(job->terms, ht_min64(job->terms, ht_team_threads(job->call->team)), thread);
}

/* The sums of a term. Those of a thread end where its scratch memory ends; the im2col block is at its beginning. */
static float *sums_of(const convolution *job, int64_t term)
{
    int64_t thread = 0;
    while (first_term(job, thread + 1) <= term)
        thread++;
    return (float *)ht_scratch(job->call, (int)thread) + HT_CONV_SCRATCH / 4 -
           (first_term(job, thread + 1) - term) * job->image.out_channels * job->image.pixels;
}

/* One term of a chunk of output channels. */
static void term_part(void *context, int64_t unit, int thread)
{
    const convolution *job = (const convolution *)context;
    const int64_t term = unit / job->chunks, m = first_channel(job, unit % job->chunks);
    const ht_conv c = convolution_of(job, 0, (float *)ht_scratch(job->call, thread));
    const ht_conv some = channels_of(&c, m, first_channel(job, unit % job->chunks + 1));
    ht_conv_wide_term(&some, term, sums_of(job, term) + m * c.pixels);
}

static void add_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const convolution *job = (const convolution *)context;
    const int64_t channels = job->image.out_channels;
    float *sums[MOST_TERMS];
    for (int64_t term = 0; term < job->terms; term++)
        sums[term] = sums_of(job, term);
    ht_conv_wide_add(&job->image, sums, job->terms, ht_part_begin(channels, job->parts, part),
                     ht_part_begin(channels, job->parts, part + 1));
}

static void convolve_terms(convolution *job)
{
    ht_parallel(job->call->team, job->terms * job->chunks, term_part, job);
    job->parts = ht_min64(job->image.out_channels, 2 * ht_team_threads(job->call->team));
    ht_parallel(job->call->team, job->parts, add_part, job);
}

/* WINOGRAD: the blocks that all threads share. The transformed inputs of shared block i are in the scratch memory of
 * thread i. */
typedef struct {
    const convolution *job;
    int64_t groups, panels;        /* of a block: input channels transformed together, output channels */
    int64_t parts;                 /* of the current step */
    int any_extreme;
    ht_flag extreme[HT_MAX_THREADS]; /* of each block: whether inputs may be extreme */
} sharing;

static ht_conv shared_convolution(const sharing *s, int64_t i, int thread)
{
    return convolution_of(s->job, (s->job->units + i) / s->job->blocks, (float *)ht_scratch(s->job->call, thread));
}

static int64_t shared_block(const sharing *s, int64_t i) { return (s->job->units + i) % s->job->blocks; }

static void transform_part(void *context, int64_t part, int thread)
{
    sharing *s = (sharing *)context;
    const int64_t units = s->job->shared * s->groups, end = ht_part_begin(units, s->parts, part + 1);
    for (int64_t unit = ht_part_begin(units, s->parts, part), next; unit < end; unit = next) {
        const int64_t i = unit / s->groups, group = unit % s->groups;
        next = ht_min64(end, (i + 1) * s->groups);
        const ht_conv c = shared_convolution(s, i, thread);
        const int64_t last = (group + next - unit) * HT_CONV_WINOGRAD_TOGETHER;
        if (!ht_conv_winograd_transform(&c, s->job->tile, shared_block(s, i), group * HT_CONV_WINOGRAD_TOGETHER,
                                        ht_min64(c.in_channels, last), (float *)ht_scratch(s->job->call, (int)i)))
            ht_flag_set(&s->extreme[i], 1);
    }
}

/* Calls `multiply` or `repair` with a chunk of output channels. A block has as many units as panels; wider chunks take
 * the first of them. */
static void shared_chunk(const sharing *s, int64_t unit, int thread, int repairs)
{
    const int64_t i = unit / s->panels, chunk = unit % s->panels, block = shared_block(s, i), m = s->job->tile;
    const ht_conv c = shared_convolution(s, i, thread);
    const int64_t threads = ht_team_threads(s->job->call->team), width = ht_conv_winograd_width(&c, m, block);
    int64_t chunks = ht_ceil_div(s->panels * HT_PANEL, width);
    chunks = ht_min64(s->panels, ht_ceil_div(chunks, threads) * threads);
    if (chunk >= chunks)
        return;
    const int64_t m0 = ht_part_begin(s->panels, chunks, chunk) * HT_PANEL;
    const int64_t m1 = ht_min64(c.out_channels, ht_part_begin(s->panels, chunks, chunk + 1) * HT_PANEL);
    if (!repairs)
        ht_conv_winograd_multiply(&c, m, block, m0, m1, (float *)ht_scratch(s->job->call, (int)i));
    else if (s->extreme[i] || s->any_extreme)
        ht_conv_winograd_repair(&c, m, block, m0, m1, !s->extreme[i]);
}

static void multiply_part(void *context, int64_t part, int thread)
{
    const sharing *s = (const sharing *)context;
    const int64_t units = s->job->shared * s->panels, end = ht_part_begin(units, s->parts, part + 1);
    for (int64_t unit = ht_part_begin(units, s->parts, part); unit < end && !ht_stopping(); unit++)
        shared_chunk(s, unit, thread, 0);
}

static void repair_part(void *context, int64_t part, int thread)
{
    const sharing *s = (const sharing *)context;
    const int64_t units = s->job->shared * s->panels, end = ht_part_begin(units, s->parts, part + 1);
    for (int64_t unit = ht_part_begin(units, s->parts, part); unit < end && !ht_stopping(); unit++)
        shared_chunk(s, unit, thread, 1);
}

static void convolve_shared(const convolution *job)
{
    sharing s = {.job = job, .groups = ht_ceil_div(job->image.in_channels, HT_CONV_WINOGRAD_TOGETHER),
                 .panels = ht_ceil_div(job->image.out_channels, HT_PANEL)};
    ht_team *team = job->call->team;
    s.parts = ht_min64(job->shared * s.groups, ht_wanted(job->call, INFINITY));
    ht_parallel(team, s.parts, transform_part, &s);
    s.parts = ht_min64(job->shared * s.panels, HT_MAX_PARTS);
    ht_parallel(team, s.parts, multiply_part, &s);
    int repairs = 0;
    for (int64_t i = 0; i < job->shared; i++)
        repairs |= s.extreme[i];
    for (int64_t g = 0; g < job->group; g++) {
        const ht_conv c = convolution_of(job, g, NULL);
        s.any_extreme |= ht_conv_winograd_has_extreme(&c, job->tile);
    }
    if (HT_UNLIKELY(repairs || s.any_extreme))
        ht_parallel(team, s.parts, repair_part, &s);
}

/* The number of chunks of each block, at least `fewest`, that takes the minimum time for `blocks` blocks. `preparation`:
 * the cost of a chunk apart from its columns, in columns. */
static int64_t best_chunks(const ht_call *call, int64_t blocks, int64_t columns, int64_t fewest, double preparation,
                           int64_t wanted)
{
    const int64_t threads = call->team ? ht_team_threads(call->team) : 1;
    const int64_t most = ht_min64(columns, ht_max64(fewest, ht_ceil_div(wanted, blocks)) + threads);
    int64_t best = fewest;
    double least = INFINITY;
    for (int64_t chunks = fewest; wanted > 1 && chunks <= most; chunks++) {
        const double chunk = preparation + (double)ht_ceil_div(columns, chunks);
        const double time = ht_rounds(blocks * chunks, threads) * chunk;
        if (time <= least * 1.001) {
            least = time;
            best = chunks;
        }
    }
    return best;
}

/* DIRECT: each chunk of output channels copies its block again, and each block reads the weights again. For a convolution
 * of one plane, the numbers of chunks and blocks are those that take the minimum time. */
static void divide_direct(convolution *job, int64_t images, int64_t wanted)
{
    const ht_conv *c = &job->image;
    const int copies = ht_conv_direct_copies(c);
    const int64_t blocks = ht_conv_direct_blocks(c);
    job->blocks = blocks;
    job->columns = ht_ceil_div(c->out_channels, job->grain);
    const double repeated = NARROW_TILES + (copies ? COPY : 0), per_tile = HT_CONV_DIRECT_CHANNELS / (double)job->grain;
    /* The last block may be small. If there are few and nothing is copied, each is divided evenly. */
    const int64_t equal = copies || images * blocks >= wanted ? images * blocks : 1;
    job->chunks = best_chunks(job->call, equal, job->columns, 1, repeated * per_tile, wanted);
    if (!copies || wanted == 1 || c->out[0] > 1)
        return;
    const int64_t threads = ht_team_threads(job->call->team), most = ht_max64(blocks, ht_ceil_div(wanted, images)) + threads;
    const double pixels = (double)c->pixels, all_columns = (double)c->out_channels / HT_CONV_DIRECT_CHANNELS;
    double least = INFINITY;
    for (int64_t bands = blocks; bands <= ht_min64(most, c->out[1]); bands++) {
        const int64_t rows = ht_ceil_div(c->out[1], bands);
        const ht_conv band = band_of(c, 0, rows);
        if (ht_conv_direct_blocks(&band) > 1)
            continue;
        const double rows_read = (double)((rows - 1) * c->stride[1] + c->kernel[1]) / (double)c->stride[1];
        for (int64_t chunks = 1; chunks <= job->columns && (chunks == 1 || bands * chunks <= most); chunks++) {
            const double columns = fmin(all_columns, (double)ht_ceil_div(job->columns, chunks) / per_tile);
            const double unit = (columns + NARROW_TILES) * ((double)(rows * c->out[2]) + WEIGHTS * TILE_PIXELS) / pixels +
                                COPY * rows_read / (double)c->out[1];
            const double time = ht_rounds(images * bands * chunks, threads) * unit;
            if (time <= least * 1.001) {
                least = time;
                job->bands = job->blocks = bands;
                job->chunks = chunks;
            }
        }
    }
}

/* Time of a chunk of `channels` output channels and a block of `pixels` of WIDE without tiles, in multiply-adds per k. */
static double wide_unit(const ht_conv *c, int64_t pixels, int64_t channels)
{
    return (in_wide_tiles(pixels, channels) + WEIGHTS * TILE_PIXELS) * (double)channels + sampling(c) * (double)pixels;
}

/* WIDE: divides a convolution of one image with few pixels by terms of its sums, if that takes less time than `least`.
 * Each thread then reads the channels that it wrote in the previous convolution, and can overwrite them later without
 * waiting for another thread's cache. Only the terms pass between threads. */
static void divide_terms(convolution *job, double least)
{
    const ht_conv *c = &job->image;
    const int64_t terms = ht_conv_wide_terms(c), threads = ht_team_threads(job->call->team);
    const int64_t outputs = c->out_channels * c->pixels, panels = ht_panel_floats(ht_ceil_div(c->depth_k, terms), c->pixels);
    const double moved = (double)outputs * (double)terms / (double)threads / (double)c->depth_k;
    const double foreign = 1 - 1 / (double)threads;
    if (terms == 1 || terms > MOST_TERMS || c->pixels > HT_BLOCK_N ||
        ht_ceil_div(terms, threads) * outputs + panels > HT_CONV_SCRATCH / 4)
        return;
    for (int64_t chunks = 1; chunks <= ht_min64(job->columns, 4 * threads); chunks++) {
        const int64_t channels = ht_min64(ht_ceil_div(job->columns, chunks) * job->grain, c->out_channels);
        const double time = ht_rounds(terms * chunks, threads) * wide_unit(c, c->pixels, channels) / (double)terms +
                            (ADDING + FOREIGN * foreign) * moved + REGION / (double)c->depth_k;
        if (time < least) {
            least = time;
            job->terms = terms;
            job->chunks = chunks;
        }
    }
}

/* WIDE: each chunk of output channels samples its block again, and each block of pixels reads the weights again. A small
 * number of pixels rarely divides evenly into vectors, so the numbers of chunks and blocks are chosen together. */
static void divide_wide(convolution *job, int64_t images, int64_t wanted)
{
    const ht_conv *c = &job->image;
    job->pixel_grain = c->tiled ? HT_TILED_GROUP : wanted > 1 ? HT_PANEL : WIDE_PIXELS;
    job->grain = c->tiled ? HT_TILED_GROUP : HT_PANEL;
    job->columns = ht_ceil_div(c->out_channels, job->grain);
    const int64_t pixel_columns = ht_ceil_div(c->pixels, job->pixel_grain);
    const int64_t fewest = ht_ceil_div(pixel_columns, HT_BLOCK_N / job->pixel_grain);
    job->blocks = fewest;
    if (wanted == 1)
        return;
    const int64_t threads = ht_team_threads(job->call->team), most = ht_max64(fewest, ht_ceil_div(wanted, images)) + threads;
    const int flat = ht_conv_flat(c);
    const double foreign = 1 - 1 / (double)threads; /* the share of the inputs that other threads wrote */
    double least = INFINITY;
    for (int64_t blocks = fewest; blocks <= ht_min64(most, pixel_columns); blocks = ht_next_blocks(blocks)) {
        const int64_t pixels = ht_min64(ht_ceil_div(pixel_columns, blocks) * job->pixel_grain, c->pixels);
        for (int64_t chunks = 1; chunks <= job->columns && (chunks == 1 || blocks * chunks <= most);
             chunks = ht_next_blocks(chunks)) {
            const int64_t channels = ht_min64(ht_ceil_div(job->columns, chunks) * job->grain, c->out_channels);
            double unit;
            if (c->tiled) { /* the products of all chunks differ by at most one tile */
                const double tall = (double)ht_ceil_div(c->out_channels, HT_PANEL) * HT_PANEL / (double)chunks;
                const double wide = (double)(ht_ceil_div(pixels, HT_PANEL) * HT_PANEL);
                const double pixel = ht_conv_tiled_pixel(flat) + (chunks > 1 ? FOREIGN : 0);
                unit = 0.5 * tall * wide + ht_conv_tiled_map(c->has_parts) * tall + pixel * wide;
            } else {
                unit = wide_unit(c, pixels, channels) + FOREIGN * foreign * (double)pixels;
            }
            const double time = ht_rounds(images * blocks * chunks, threads) * unit;
            if (time <= least * 1.001) {
                least = time;
                job->blocks = blocks;
                job->chunks = chunks;
            }
        }
    }
    if (!c->tiled && images == 1)
        divide_terms(job, least);
}

/* Divides into blocks and chunks: the best sizes for one thread, reduced if there are too few for all threads. Threads
 * then take panels instead of whole tiles, which makes their shares more even. */
static void divide(convolution *job, int64_t batch, double cost)
{
    const ht_conv *c = &job->image;
    const int64_t images = batch * job->group;
    if (job->way == ROW) {
        job->grain = HT_PANEL;
        job->columns = ht_ceil_div(c->out_channels, HT_PANEL);
        job->blocks = 1;
        job->chunks = ht_min64(job->columns, ht_ceil_div(ht_parts(job->call, images * job->columns, READING * cost), images));
        job->units = images * job->chunks;
        job->parts = ht_parts(job->call, job->units, READING * cost);
        return;
    }
    const int64_t parts_wanted = ht_wanted(job->call, cost);
    job->blocks = job->chunks = 1;
    job->grain = parts_wanted > 1 ? HT_PANEL : TILE_PIXELS;
    const double per_tile = TILE_PIXELS / (double)job->grain; /* columns */
    if (job->way == DEPTHWISE || job->way == NARROW) {
        job->step = job->way == NARROW ? VF_LANES : 1;
        job->blocks = ht_min64(ht_ceil_div(job->group, job->step), ht_ceil_div(parts_wanted, batch));
        job->units = batch * job->blocks;
        job->parts = ht_parts(job->call, job->units, cost);
        return;
    }
    if (job->way == WIDE) {
        divide_wide(job, images, parts_wanted);
    } else if (job->way == GROUPED) {
        const int64_t share = ht_ceil_div(images * c->out[1], parts_wanted);
        job->block_rows = ht_conv_grouped_rows(c, ht_min64(share, c->out[1]));
        job->columns = ht_ceil_div(c->out_channels, job->grain); /* one chunk */
        job->blocks = ht_ceil_div(c->out[1], job->block_rows);
    } else if (job->way == ROWS) {
        const int64_t share = ht_ceil_div(images * c->out[0] * c->out[1], parts_wanted);
        job->block_rows = ht_conv_rows_block(c, ht_min64(share, c->out[1]));
        job->blocks = c->out[0] * ht_ceil_div(c->out[1], job->block_rows);
        job->columns = ht_ceil_div(c->out_channels, job->grain);
        const double column = (double)(c->pixels * c->depth_k * job->grain); /* multiply-adds */
        job->chunks = best_chunks(job->call, images * job->blocks, job->columns, 1,
                                  NARROW_TILES * per_tile + ht_conv_rows_moved(c) / column, parts_wanted);
    } else if (job->way == INSIDE) {
        enum { LEAST = 64 }; /* pixels of a block: fewer would make reading the weights costly */
        const int64_t fewest = ht_ceil_div(c->out_channels, HT_CONV_INSIDE_CHANNELS);
        job->grain = HT_CONV_DIRECT_CHANNELS;
        job->columns = ht_ceil_div(c->out_channels, job->grain);
        job->chunks = best_chunks(job->call, images * ht_ceil_div(c->pixels, LEAST), job->columns, fewest, COPY, parts_wanted);
        const int64_t channels = ht_ceil_div(job->columns, job->chunks) * job->grain;
        const int64_t wanted = ht_ceil_div(parts_wanted, images * job->chunks);
        job->blocks = ht_max64(ht_ceil_div(c->pixels, ht_conv_inside_pixels(channels)),
                               ht_min64(wanted, ht_ceil_div(c->pixels, LEAST)));
    } else if (job->way == WINOGRAD) {
        job->blocks = ht_conv_winograd_blocks(c, job->tile);
    } else {
        divide_direct(job, images, parts_wanted);
    }
    if ((job->way == ROWS || job->way == GROUPED) && c->out[0] * c->out[1] == 1 && images * job->chunks < parts_wanted)
        job->blocks = job->strips =
            ht_min64(ht_ceil_div(c->out[2], TILE_PIXELS), ht_ceil_div(parts_wanted, images * job->chunks));
    job->units = images * job->blocks * job->chunks;
    const int64_t threads = parts_wanted > 1 ? ht_team_threads(job->call->team) : 1;
    if (job->way == WINOGRAD && threads > 1) {
        /* If an image has several blocks, its last one has fewer tiles, so the last round is shared even if the blocks divide
         * evenly. */
        const int64_t rest = job->units % threads;
        job->shared = rest > 0 || job->blocks == 1 ? rest : threads;
        job->units -= job->shared;
    }
    job->parts = ht_parts(job->call, job->units, cost);
}

static const ht_tensor *operand(const ht_call *call, int at) { return at < call->num_in ? call->in[at] : NULL; }

/* Joins the rows of each plane to one long row, if the kernel is one column wide and each column has one output: (h, w) lies at
 * h * width + w, so a step of the kernel along the height is one of `width` columns. A second turn joins planes. The products
 * of a sum and their order are the same. Long rows fill vectors, and a large dilation copies no rows in between. */
static void join_rows(ht_conv *c)
{
    enum { LARGEST = 1 << 20 }; /* dilations and pads, so that their products with the width do not overflow */
    for (int turn = 0; turn < 2; turn++) {
        const int64_t width = c->in[2];
        if (c->kernel[2] > 1 || c->stride[2] > 1 || c->pad[2] > 0 || c->out[2] != width ||
            (c->stride[1] > 1 && width > 1) || c->dilation[1] > LARGEST || c->pad[1] > LARGEST)
            return;
        c->in[1] *= width;
        c->out[1] *= width;
        c->pad[1] *= width;
        c->dilation[1] *= width;
        int64_t *const sizes[] = {c->in, c->out, c->kernel, c->stride, c->dilation, c->pad};
        for (int i = 0; i < 6; i++) {
            sizes[i][2] = sizes[i][1];
            sizes[i][1] = sizes[i][0];
            sizes[i][0] = sizes[i] == c->pad ? 0 : 1;
        }
    }
}

int HT_KERNEL(conv)(const ht_call *call)
{
    if (call->num_in < 2 || call->num_out != 1 || call->num_floats != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *w = call->in[1], *y = call->out[0];
    const ht_tensor *bias = operand(call, 2), *addend = operand(call, 3), *scale = operand(call, 6),
                    *shift = operand(call, 7), *late = operand(call, 8);
    ht_window shapes;
    if (call->num_ints < 15 || call->num_ints > 16 || !ht_window_shapes(&shapes, x, y))
        return HT_ERR_OPERAND;
    if (x->dtype != HT_FLOAT32 || w->dtype != HT_FLOAT32 || y->dtype != HT_FLOAT32)
        return HT_ERR_DTYPE;
    const int64_t group = call->ints[0], batch = shapes.n, channels = shapes.c, maps = y->dims[1];
    const int64_t w_packed = call->ints[1], has_parts = w_packed == 3;
    const int64_t winograd = w_packed > 1 && !has_parts ? w_packed : 0;
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
    const int64_t knowledge = w_packed == 1 && call->num_ints > 15 ? call->ints[15] : 0;
    c.finite = knowledge == 1 || knowledge == 2;
    const int64_t packed_group = winograd    ? ht_winograd_floats(c.in_channels, c.out_channels, winograd)
                                 : has_parts ? ht_parts_floats(c.depth_k, c.out_channels)
                                             : ht_panel_floats(c.depth_k, c.out_channels);
    if (has_parts && (!HT_TILES || c.depth_k < 1))
        return HT_ERR_OPERAND;
    if (winograd && !ht_conv_winograd_fits(&c, winograd, call->scratch_bytes))
        return HT_ERR_OPERAND;
    if (w->size != (w_packed ? group * packed_group : maps * c.depth_k))
        return HT_ERR_OPERAND;
    const ht_tensor *const optional[] = {bias, scale, shift, addend, late};
    for (int i = 0; i < 5; i++) {
        if (optional[i] && optional[i]->size != (i < 3 ? maps : y->size))
            return HT_ERR_OPERAND;
        if (optional[i] && optional[i]->dtype != HT_FLOAT32)
            return HT_ERR_DTYPE;
    }
    if (winograd) {
        const ht_tensor *plain = operand(call, 4), *factor = operand(call, 5);
        if (!plain || plain->size != maps * c.depth_k * (int64_t)sizeof(float) || (factor && factor->size != maps))
            return HT_ERR_OPERAND;
        if (plain->dtype != HT_UINT8 || (factor && factor->dtype != HT_FLOAT32))
            return HT_ERR_DTYPE;
        c.plain = (const char *)plain->data;
        c.scale = factor ? (const float *)factor->data : NULL;
    }

    const int depthwise = !w_packed && c.out_channels <= HT_CONV_DEPTHWISE_MAPS && ht_conv_depthwise_fits(&c);
    c.has_parts = has_parts;
    c.tiled = has_parts || (HT_TILES && !winograd && !depthwise &&
                            ht_conv_tiled(c.out_channels, c.in_plane, c.pixels, c.in_channels, c.taps,
                                          c.finite ? ht_conv_kept(c.in, c.out, c.kernel, c.stride, c.pad, c.dilation)
                                                   : HT_CONV_KEPT));
    c.plain_weights = c.tiled && !w_packed;
    if (c.tiled) /* without the memory of an im2col block, more terms are held */
        c.tiled_k = ht_tiled_k_step(c.depth_k, ht_conv_flat(&c) ? ht_tiled_most_k(c.pixels) : HT_TILED_K);
    ht_conv joined = c;
    join_rows(&joined);
    int way = WIDE;
    if (depthwise) {
        if (ht_conv_depthwise_fits(&joined) && joined.out[2] >= DEPTHWISE_JOINED && !ht_conv_narrow_is_better(&joined, group) &&
            ht_conv_depthwise_cost(&joined) < ht_conv_depthwise_cost(&c))
            c = joined;
        way = ht_conv_narrow_is_better(&c, group) ? NARROW : DEPTHWISE;
    } else if (winograd) {
        way = WINOGRAD;
    } else if (c.tiled || c.in_channels == 0) { /* other ways divide by the number of input channels */
        c = joined;
    } else if (c.pixels == 1 && !c.padded && c.in_plane == c.taps) {
        way = ROW;
    } else {
        double cost, cost_joined;
        way = cheapest(&c, knowledge == 1, &cost);
        if (joined.in[2] != c.in[2]) {
            const int way_joined = cheapest(&joined, knowledge == 1, &cost_joined);
            if (AS_CHEAP * cost_joined < cost) {
                c = joined;
                way = way_joined;
            }
        }
    }
    const int packs = !w_packed && !depthwise && packed_group > 0 && !c.plain_weights;
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
    const int64_t w_group = depthwise || c.plain_weights ? c.depth_k * c.out_channels : packed_group;
    c.x = (const float *)x->data;
    c.w = weights;
    c.bias = bias ? (const float *)bias->data : NULL;
    c.addend = addend ? (const float *)addend->data : NULL;
    c.after_scale = scale ? (const float *)scale->data : NULL;
    c.after_shift = shift ? (const float *)shift->data : NULL;
    c.late = late ? (const float *)late->data : NULL;
    c.y = (float *)y->data;
    convolution job = {.call = call, .image = c, .way = way, .tile = winograd, .group = group, .w_group = w_group};
    divide(&job, batch, (double)y->size * (double)c.depth_k * (c.tiled ? 0.5 : 1));
    if (job.terms > 0)
        convolve_terms(&job);
    else
        ht_parallel(call->team, job.parts, convolve_part, &job);
    if (job.shared > 0)
        convolve_shared(&job);
    return HT_OK;
}
