/* pointwise_depthwise: a 1x1 convolution and the depthwise convolution of its result, as in inverted residual blocks:
 * y = activation2(depthwise(activation1(conv(x, w1) + bias1), w2) + bias2), float32.
 *
 * The result of the 1x1 convolution, which may be several times as large as x and y, is never in memory: of a band of
 * its rows, some channels at a time are computed in the L2 cache and read there. The inputs of a band are packed once
 * for all channels of a unit, while the first of them are computed. The rows that a band shares with the next (as many as
 * the height of the kernel - stride) are kept for it.
 *
 * in: x[N][C][H][W]; w1 by pack_b with ints (1, C, M, 1); bias1[M] or NULL; w2[M][1][height][width]; bias2[M] or NULL.
 * out: y[N][M][rows][columns]; overlaps no input.
 * ints: activation1, activation2 (unary.h), height, width, strides, pads before (two each). Pads after follow from y's
 *   shape. Each row of windows contains a row of the input.
 * floats: the two parameters of activation1, and of activation2.
 * scratch: HT_CONV_SCRATCH bytes, the kept rows of all channels, and the packed inputs and HT_POINTWISE_CHANNELS channels
 *   of a band, at least of min(rows, HT_POINTWISE_LEAST_ROWS) output rows. Bands are as high as it allows.
 *
 * Division: units are strips of images times chunks of channels, by the numbers of both that take the minimum time: more
 * strips compute more rows twice, and more chunks pack more inputs. A unit computes its strip band by band. The sums do
 * not depend on the bands, because these have several rows if the result does: conv_depthwise.c adds up the products of a
 * single row in another order.
 */
#include "blocks.h"
#include "conv.h"
#include "layouts.h"
#include "pointwise_depthwise.h"

/* Of the channels that get their activation together, just before they are read: 16 kB, a part of the L1 cache. */
#define L1_FLOATS 4096

/* What packing an input element takes, in multiply-adds of the 1x1 convolution, and what a multiply-add of the depthwise
 * convolution takes. */
#define PACKING 10
#define DEPTHWISE 3

typedef struct {
    ht_conv depthwise; /* of the first image and all rows; x is not set */
    const float *x, *w, *bias; /* of the 1x1 convolution */
    int64_t channels;
    int activation;
    float p0, p1, low, high;
    const ht_call *call;
    int64_t rows; /* of a band, at most */
    int64_t strips, chunks, units, parts;
} convolutions;

/* Rows [*first, *end) of the input of the depthwise convolution that output rows [y0, y1) need. Returns how many
 * rows of padding precede them. */
static int64_t rows_read(const ht_conv *c, int64_t y0, int64_t y1, int64_t *first, int64_t *end)
{
    const int64_t begin = y0 * c->stride[1] - c->pad[1];
    *first = ht_max64(0, begin);
    *end = ht_min64(c->in[1], (y1 - 1) * c->stride[1] - c->pad[1] + c->kernel[1]);
    HT_ASSERT(*first < *end);
    return *first - begin;
}

/* A band: rows [y0, y1) of the result, and the rows [first, end) that they need of the depthwise convolution's input. */
typedef struct {
    int64_t y0, y1, first, end;
    int64_t padding; /* rows before `first` */
    int64_t known;   /* rows from `first` on that the band before has kept */
} band_rows;

static band_rows band_of(const ht_conv *c, int64_t y0, int64_t y1, int64_t known_end)
{
    band_rows band = {.y0 = y0, .y1 = y1};
    band.padding = rows_read(c, y0, y1, &band.first, &band.end);
    band.known = ht_max64(0, known_end - band.first);
    return band;
}

/* The depthwise convolution of `count` channels from m on, which are in `expanded` without the activation from row
 * `known` on. */
static void convolve_channels(const convolutions *job, const ht_conv *band, int64_t known, float *expanded, int64_t m,
                              int64_t count)
{
    const int64_t from = known * band->in[2], pixels = band->in[1] * band->in[2] - from;
    if (!ht_unary_is_clip(job->activation))
        for (int64_t i = 0; i < count; i++) {
            float *channel = expanded + i * band->in_plane + from;
            ht_unary_f32(job->activation, job->p0, job->p1, channel, channel, pixels);
        }
    ht_conv c = *band;
    c.x = expanded;
    c.w += m * c.taps;
    c.bias = c.bias ? c.bias + m : NULL;
    c.y += m * c.pixels;
    ht_conv_depthwise(&c, 0, count);
}

/* Copies `floats` floats of each of `count` channels. */
static void copy_rows(float *to, int64_t to_channel, const float *from, int64_t from_channel, int64_t count,
                      int64_t floats)
{
    for (int64_t i = 0; i < count && floats > 0; i++)
        memcpy(to + i * to_channel, from + i * from_channel, (size_t)floats * sizeof(float));
}

/* Channels [m0, m1) of a band of an image. kept: `kept_channel` floats for each of these channels. They hold the rows that
 * the band before has kept, and receive the rows for the next band, which begins at row `next_first` of the input. */
static void compute_band(const convolutions *job, int64_t image, int64_t m0, int64_t m1, const band_rows *band,
                         int64_t next_first, float *kept, int64_t kept_channel, float *scratch)
{
    const ht_conv *whole = &job->depthwise;
    const int64_t width = whole->in[2], k = job->channels, in_plane = whole->in[1] * width;
    const int64_t known = band->known * width, plane = ht_pointwise_plane((band->end - band->first) * width);
    const int64_t pixels = (band->end - band->first) * width - known;
    float *packed = kept + whole->out_channels * kept_channel, *expanded = packed + ht_panel_floats(k, pixels);
    const float *x = job->x + image * k * in_plane + band->first * width + known;
    ht_conv c = *whole;
    c.y += image * whole->out_channels * c.pixels + band->y0 * c.out[2];
    c.out_channels = 1;
    c.in_plane = plane;
    c.in[1] = band->end - band->first;
    c.out[1] = band->y1 - band->y0;
    c.pad[1] = band->padding;
    c.scratch = scratch;
    const int64_t together = ht_max64(1, L1_FLOATS / plane), next = ht_max64(0, band->end - next_first) * width;
    for (int64_t m = m0; m < m1 && !ht_stopping(); m += HT_POINTWISE_CHANNELS) {
        const int64_t count = ht_min64(HT_POINTWISE_CHANNELS, m1 - m);
        const ht_epilogue e = {.bias = job->bias ? job->bias + m : NULL, .bias_row = 1, .alpha = 1, .beta = 1,
                               .low = job->low, .high = job->high};
        const int64_t blocks = ht_max64(1, ht_ceil_div(k, HT_BLOCK_K));
        copy_rows(expanded, plane, kept + (m - m0) * kept_channel, kept_channel, count, known);
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t k0 = ht_part_begin(k, blocks, block), k1 = ht_part_begin(k, blocks, block + 1);
            float *inputs = packed + ht_panel_floats(k0, pixels);
            const ht_tile t = {.a = job->w + m * k + k0 * HT_PANEL, .a_row = 1, .a_k = HT_PANEL,
                               .b = inputs, .b_k = HT_PANEL, .b_panel = (k1 - k0) * HT_PANEL,
                               .c = expanded + known, .c_row = plane, .k = k1 - k0, .accumulate = block > 0,
                               .epilogue = k1 == k ? &e : NULL,
                               .next = k1 < k                        ? job->w + m * k + k1 * HT_PANEL
                                       : m + count < whole->out_channels ? job->w + (m + count) * k
                                                                         : NULL};
            if (m == m0)
                ht_gemm_packing(&t, x + k0 * in_plane, in_plane, inputs, k * HT_PANEL, count, pixels);
            else
                ht_gemm_block(&t, k * HT_PANEL, count, pixels);
        }
        for (int64_t i = 0; i < count; i += together)
            convolve_channels(job, &c, band->known, expanded + i * plane, m + i, ht_min64(together, count - i));
        copy_rows(kept + (m - m0) * kept_channel, kept_channel, expanded + known + pixels - next, plane, count, next);
    }
}

static void compute_unit(const convolutions *job, int64_t unit, float *scratch)
{
    const ht_conv *c = &job->depthwise;
    const int64_t chunk = unit % job->chunks, strip = unit / job->chunks % job->strips;
    const int64_t image = unit / job->chunks / job->strips;
    const int64_t panels = ht_ceil_div(c->out_channels, HT_POINTWISE_CHANNELS);
    const int64_t m0 = ht_part_begin(panels, job->chunks, chunk) * HT_POINTWISE_CHANNELS;
    const int64_t m1 = ht_min64(c->out_channels, ht_part_begin(panels, job->chunks, chunk + 1) * HT_POINTWISE_CHANNELS);
    const int64_t top = ht_part_begin(c->out[1], job->strips, strip);
    const int64_t rows = ht_part_begin(c->out[1], job->strips, strip + 1) - top, bands = ht_ceil_div(rows, job->rows);
    const int64_t kept_channel = ht_pointwise_kept(c->kernel[1], c->stride[1], c->in[2]);
    float *kept = scratch + HT_CONV_SCRATCH / sizeof(float);
    for (int64_t b = 0, known_end = 0; b < bands && !ht_stopping(); b++) {
        const int64_t y0 = top + ht_part_begin(rows, bands, b), y1 = top + ht_part_begin(rows, bands, b + 1);
        const band_rows band = band_of(c, y0, y1, known_end);
        const int64_t next_first = b + 1 < bands ? ht_max64(0, y1 * c->stride[1] - c->pad[1]) : band.end;
        compute_band(job, image, m0, m1, &band, next_first, kept, kept_channel, scratch);
        known_end = band.end;
    }
}

static void compute_part(void *context, int64_t part, int thread)
{
    const convolutions *job = (const convolutions *)context;
    const int64_t end = ht_part_begin(job->units, job->parts, part + 1);
    for (int64_t unit = ht_part_begin(job->units, job->parts, part); unit < end && !ht_stopping(); unit++)
        compute_unit(job, unit, (float *)ht_scratch(job->call, thread));
}

/* Does a band of so many output rows fit the scratch memory? */
static int band_fits(const ht_conv *c, int64_t channels, int64_t maps, int64_t rows, int64_t scratch_bytes)
{
    const int64_t read = ht_pointwise_rows_read(rows, c->kernel[1], c->stride[1], c->in[1]);
    const int64_t kept = ht_size_product(maps, ht_pointwise_kept(c->kernel[1], c->stride[1], c->in[2]));
    const int64_t band = ht_pointwise_bytes(channels, ht_size_product(read, c->in[2]));
    return ht_size_sum(band, ht_size_product(kept, sizeof(float))) <= scratch_bytes - HT_CONV_SCRATCH;
}

/* Sets the numbers of strips and chunks that take the minimum time. */
static void divide(convolutions *job, int64_t batch, double cost)
{
    const ht_conv *c = &job->depthwise;
    const int64_t wanted = ht_ceil_div(ht_wanted(job->call, cost), batch);
    const int64_t most_strips = ht_max64(1, ht_min64(wanted, c->out[1] / HT_POINTWISE_LEAST_ROWS));
    const int64_t panels = ht_ceil_div(c->out_channels, HT_POINTWISE_CHANNELS);
    const int64_t threads = job->call->team ? ht_team_threads(job->call->team) : 1;
    double least = INFINITY;
    job->strips = job->chunks = 1;
    for (int64_t strips = 1; wanted > 1 && strips <= most_strips; strips++) {
        const int64_t rows = ht_ceil_div(c->out[1], strips);
        const double read = (double)(ht_pointwise_rows_read(rows, c->kernel[1], c->stride[1], c->in[1]) * c->in[2]);
        const double packing = read * (double)job->channels * PACKING;
        const double panel = HT_POINTWISE_CHANNELS *
                             (read * (double)job->channels + (double)(rows * c->out[2] * c->taps) * DEPTHWISE);
        for (int64_t chunks = 1; chunks <= ht_min64(panels, ht_ceil_div(wanted, strips)); chunks++) {
            const double unit = packing + (double)ht_ceil_div(panels, chunks) * panel;
            const double time = ht_rounds(batch * strips * chunks, threads) * unit;
            if (time < least) {
                least = time;
                job->strips = strips;
                job->chunks = chunks;
            }
        }
    }
    job->units = batch * job->strips * job->chunks;
    job->parts = ht_parts(job->call, job->units, cost);
}

int HT_KERNEL(pointwise_depthwise)(const ht_call *call)
{
    if (call->num_in != 5 || call->num_out != 1 || call->num_ints != 8 || call->num_floats != 4)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *w = call->in[1], *bias = call->in[2], *w2 = call->in[3], *bias2 = call->in[4];
    const ht_tensor *y = call->out[0];
    if (!x || !w || !w2 || x->ndim != 4 || y->ndim != 4)
        return HT_ERR_OPERAND;
    for (int i = 0; i < call->num_in; i++)
        if (call->in[i] && call->in[i]->dtype != HT_FLOAT32)
            return HT_ERR_DTYPE;
    if (y->dtype != HT_FLOAT32)
        return HT_ERR_DTYPE;
    const int64_t batch = x->dims[0], k = x->dims[1], maps = y->dims[1], *ints = call->ints;
    ht_conv c = {.in_channels = 1, .out_channels = 1, .in = {1, x->dims[2], x->dims[3]},
                 .out = {1, y->dims[2], y->dims[3]},
                 .kernel = {1, ints[2], ints[3]}, .stride = {1, ints[4], ints[5]}, .pad = {0, ints[6], ints[7]},
                 .dilation = {1, 1, 1}, .padded = 1, .pixels = y->dims[2] * y->dims[3], .taps = ints[2] * ints[3],
                 .depth_k = ints[2] * ints[3], .activation = (int)ints[1], .p0 = (float)call->floats[2],
                 .p1 = (float)call->floats[3], .w = (const float *)w2->data,
                 .bias = bias2 ? (const float *)bias2->data : NULL, .y = (float *)y->data};
    for (int d = 1; d < 3; d++)
        if (c.kernel[d] < 1 || c.stride[d] < 1 || c.pad[d] < 0)
            return HT_ERR_OPERAND;
    if (y->dims[0] != batch || w->size != ht_panel_floats(k, maps) || (bias && bias->size != maps) ||
        w2->size != maps * c.taps || (bias2 && bias2->size != maps))
        return HT_ERR_OPERAND;
    if (y->size == 0)
        return HT_OK;
    if (c.pad[1] >= c.kernel[1] || (c.out[1] - 1) * c.stride[1] - c.pad[1] >= c.in[1] || c.in[1] < 1 || c.in[2] < 1 ||
        k < 1)
        return HT_ERR_OPERAND;
    const int64_t least = ht_min64(c.out[1], HT_POINTWISE_LEAST_ROWS);
    int64_t bands = 1;
    while (!band_fits(&c, k, maps, ht_ceil_div(c.out[1], bands), call->scratch_bytes))
        if (ht_ceil_div(c.out[1], bands++) <= least)
            return HT_ERR_OPERAND;
    if (!ht_conv_depthwise_fits(&c))
        return HT_ERR_OPERAND;
    ht_unary_clip_range(c.activation, c.p0, c.p1, &c.low, &c.high);
    c.out_channels = maps;
    convolutions job = {.depthwise = c, .x = (const float *)x->data, .w = (const float *)w->data,
                        .bias = bias ? (const float *)bias->data : NULL, .channels = k, .activation = (int)ints[0],
                        .p0 = (float)call->floats[0], .p1 = (float)call->floats[1],
                        .rows = ht_ceil_div(c.out[1], bands), .call = call};
    ht_unary_clip_range(job.activation, job.p0, job.p1, &job.low, &job.high);
    const double cost = (double)x->dims[2] * (double)x->dims[3] * (double)(batch * maps) * (double)k +
                        (double)y->size * (double)c.taps;
    divide(&job, batch, cost);
    ht_parallel(call->team, job.parts, compute_part, &job);
    return HT_OK;
}
