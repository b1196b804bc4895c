/* pointwise_depthwise: a 1x1 convolution and the depthwise convolution of its result, as in inverted residual blocks:
 * y = activation2(depthwise(activation1(conv(x, w1) + bias1), w2) + bias2), float32.
 *
 * The result of the 1x1 convolution, which may be several times as large as x and y, is never in memory: of a band of
 * its rows, some channels at a time are computed in the L2 cache and read there. The inputs of a band are packed once
 * for all channels of a unit. The rows of two bands overlap by the height of the kernel - stride, and are computed for
 * each.
 *
 * in: x[N][C][H][W]; w1 by pack_b with ints (1, C, M, 1); bias1[M] or NULL; w2[M][1][height][width]; bias2[M] or NULL.
 * out: y[N][M][rows][columns]; overlaps no input.
 * ints: activation1, activation2 (unary.h), height, width, strides, pads before (two each). Pads after follow from y's
 *   shape. Each row of windows contains a row of the input.
 * floats: the two parameters of activation1, and of activation2.
 * scratch: HT_CONV_SCRATCH bytes, and the packed inputs and HT_POINTWISE_CHANNELS channels of a band, at least of
 *   min(rows, HT_POINTWISE_LEAST_ROWS) output rows. Bands are as high as it allows.
 *
 * Division: units are bands of images times chunks of channels, by the numbers of both that take the minimum time: more
 * bands compute more rows twice, and more chunks pack more inputs. The sums do not depend on the bands, because these have several rows if the
 * result does: conv_depthwise.c adds up the products of a single row in another order.
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
    int64_t bands, chunks, units, parts;
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

/* The activation and the depthwise convolution of `count` channels from m on, which are in `expanded`. */
static void convolve_channels(const convolutions *job, const ht_conv *band, float *expanded, int64_t plane,
                              int64_t pixels, int64_t m, int64_t count)
{
    if (!ht_unary_is_clip(job->activation))
        for (int64_t i = 0; i < count; i++)
            ht_unary_f32(job->activation, job->p0, job->p1, expanded + i * plane, expanded + i * plane, pixels);
    ht_conv c = *band;
    c.x = expanded;
    c.w += m * c.taps;
    c.bias = c.bias ? c.bias + m : NULL;
    c.y += m * c.pixels;
    ht_conv_depthwise(&c, 0, count);
}

static void compute_unit(const convolutions *job, int64_t unit, float *scratch)
{
    const ht_conv *whole = &job->depthwise;
    const int64_t chunk = unit % job->chunks, band = unit / job->chunks % job->bands;
    const int64_t image = unit / job->chunks / job->bands, width = whole->in[2], k = job->channels;
    const int64_t panels = ht_ceil_div(whole->out_channels, HT_POINTWISE_CHANNELS);
    const int64_t m0 = ht_part_begin(panels, job->chunks, chunk) * HT_POINTWISE_CHANNELS;
    const int64_t m1 = ht_min64(whole->out_channels,
                                ht_part_begin(panels, job->chunks, chunk + 1) * HT_POINTWISE_CHANNELS);
    const int64_t y0 = ht_part_begin(whole->out[1], job->bands, band);
    const int64_t y1 = ht_part_begin(whole->out[1], job->bands, band + 1);
    int64_t first, end;
    const int64_t padding = rows_read(whole, y0, y1, &first, &end);
    const int64_t pixels = (end - first) * width, plane = ht_pointwise_plane(pixels);
    float *packed = scratch + HT_CONV_SCRATCH / sizeof(float), *expanded = packed + ht_panel_floats(k, pixels);
    const int64_t in_plane = whole->in[1] * width;
    ht_pack_panels(job->x + image * k * in_plane + first * width, in_plane, 0, k, pixels, packed, k);
    ht_conv c = *whole;
    c.y += image * whole->out_channels * c.pixels + y0 * c.out[2];
    c.out_channels = 1;
    c.in_plane = plane;
    c.in[1] = end - first;
    c.out[1] = y1 - y0;
    c.pad[1] = padding;
    c.scratch = scratch;
    const int64_t together = ht_max64(1, L1_FLOATS / plane);
    for (int64_t m = m0; m < m1 && !ht_stopping(); m += HT_POINTWISE_CHANNELS) {
        const int64_t count = ht_min64(HT_POINTWISE_CHANNELS, m1 - m);
        const ht_epilogue e = {.bias = job->bias ? job->bias + m : NULL, .bias_row = 1, .alpha = 1, .beta = 1,
                               .low = job->low, .high = job->high};
        const int64_t blocks = ht_max64(1, ht_ceil_div(k, HT_BLOCK_K));
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t k0 = ht_part_begin(k, blocks, block), k1 = ht_part_begin(k, blocks, block + 1);
            const ht_tile t = {.a = job->w + m * k + k0 * HT_PANEL, .a_row = 1, .a_k = HT_PANEL,
                               .b = packed + k0 * HT_PANEL, .b_k = HT_PANEL, .b_panel = k * HT_PANEL, .c = expanded,
                               .c_row = plane, .k = k1 - k0, .accumulate = block > 0, .epilogue = k1 == k ? &e : NULL,
                               .next = k1 < k                        ? job->w + m * k + k1 * HT_PANEL
                                       : m + count < whole->out_channels ? job->w + (m + count) * k
                                                                         : NULL};
            ht_gemm_block(&t, k * HT_PANEL, count, pixels);
        }
        for (int64_t i = 0; i < count; i += together)
            convolve_channels(job, &c, expanded + i * plane, plane, pixels, m + i,
                              ht_min64(together, count - i));
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
static int band_fits(const ht_conv *c, int64_t channels, int64_t rows, int64_t scratch_bytes)
{
    const int64_t read = ht_pointwise_rows_read(rows, c->kernel[1], c->stride[1], c->in[1]);
    return ht_pointwise_bytes(channels, ht_size_product(read, c->in[2])) <= scratch_bytes - HT_CONV_SCRATCH;
}

/* Sets the numbers of bands, at least `fewest`, and chunks that take the minimum time. */
static void divide(convolutions *job, int64_t batch, int64_t fewest, double cost)
{
    const ht_conv *c = &job->depthwise;
    const int64_t wanted = ht_ceil_div(ht_wanted(job->call, cost), batch);
    const int64_t most_bands = ht_max64(fewest, ht_min64(wanted, c->out[1] / HT_POINTWISE_LEAST_ROWS));
    const int64_t panels = ht_ceil_div(c->out_channels, HT_POINTWISE_CHANNELS);
    const int64_t threads = job->call->team ? ht_team_threads(job->call->team) : 1;
    double least = INFINITY;
    job->bands = fewest;
    job->chunks = 1;
    for (int64_t bands = fewest; wanted > 1 && bands <= most_bands; bands++) {
        const int64_t rows = ht_ceil_div(c->out[1], bands);
        const double read = (double)(ht_pointwise_rows_read(rows, c->kernel[1], c->stride[1], c->in[1]) * c->in[2]);
        const double packing = read * (double)job->channels * PACKING;
        const double panel = HT_POINTWISE_CHANNELS *
                             (read * (double)job->channels + (double)(rows * c->out[2] * c->taps) * DEPTHWISE);
        for (int64_t chunks = 1; chunks <= ht_min64(panels, ht_ceil_div(wanted, bands)); chunks++) {
            const double unit = packing + (double)ht_ceil_div(panels, chunks) * panel;
            const double time = ht_rounds(batch * bands * chunks, threads) * unit;
            if (time < least) {
                least = time;
                job->bands = bands;
                job->chunks = chunks;
            }
        }
    }
    job->units = batch * job->bands * job->chunks;
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
    while (!band_fits(&c, k, ht_ceil_div(c.out[1], bands), call->scratch_bytes))
        if (ht_ceil_div(c.out[1], bands++) <= least)
            return HT_ERR_OPERAND;
    if (!ht_conv_depthwise_fits(&c))
        return HT_ERR_OPERAND;
    ht_unary_clip_range(c.activation, c.p0, c.p1, &c.low, &c.high);
    c.out_channels = maps;
    convolutions job = {.depthwise = c, .x = (const float *)x->data, .w = (const float *)w->data,
                        .bias = bias ? (const float *)bias->data : NULL, .channels = k, .activation = (int)ints[0],
                        .p0 = (float)call->floats[0], .p1 = (float)call->floats[1], .call = call};
    ht_unary_clip_range(job.activation, job.p0, job.p1, &job.low, &job.high);
    const double cost = (double)x->dims[2] * (double)x->dims[3] * (double)(batch * maps) * (double)k +
                        (double)y->size * (double)c.taps;
    divide(&job, batch, bands, cost);
    ht_parallel(call->team, job.parts, compute_part, &job);
    return HT_OK;
}
