#include "layouts.h"

enum {
    STRIP_BYTES = 1 << 17,     /* of padded pixels of a strip of rows of depthwise_integer: a part of the L2 cache */
    MAX_STRIP_BYTES = 1 << 22, /* the same, of the fewest rows that a row of the output needs */
    MIN_CHANNELS = 8           /* of depthwise_integer; with fewer, most of its 64 lanes would be idle */
};

static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

int ht_quad_layout_of(ht_quad_layout *l, const int64_t *ints, int32_t count)
{
    if (count != HT_CONV_INTEGER_INTS)
        return 0;
    l->group = ints[0];
    l->channels = ints[1];
    if (l->group < 1 || l->channels < 0)
        return 0;
    l->thin = l->channels == 1;
    l->taps = l->plane = l->out_size = 1;
    l->pointwise = 1;
    for (int d = 0; d < 3; d++) {
        const int64_t kernel = l->kernel[d] = ints[2 + d], stride = l->stride[d] = ints[5 + d];
        l->pad[d] = ints[8 + d];
        const int64_t dilation = l->dilation[d] = ints[11 + d], out = l->out[d] = ints[14 + d];
        if (kernel < 1 || stride < 1 || dilation < 1 || l->pad[d] < 0 || out < 0)
            return 0;
        if (l->thin && d == 2) {
            l->period[d] = l->phases[d] = ht_quads(kernel);
            l->length[d] = out;
        } else {
            l->period[d] = stride / gcd(stride, dilation);
            l->phases[d] = min64(kernel, l->period[d]);
            l->length[d] = ht_size_sum(out, ht_size_product(kernel - 1, dilation) / stride);
        }
        l->pointwise = l->pointwise && kernel == 1 && stride == 1;
        l->taps = ht_size_product(l->taps, l->thin && d == 2 ? ht_quads(kernel) : kernel);
        l->plane = ht_size_product(l->plane, ht_size_product(l->phases[d], l->length[d]));
        l->out_size = ht_size_product(l->out_size, out);
    }
    l->plane = ht_size_product(l->plane, HT_QUAD);
    l->quads = ht_quads(l->channels);
    l->steps = ht_size_product(l->quads, l->taps);
    return 1;
}

void ht_as_one_row(ht_quad_layout *l)
{
    HT_ASSERT(l->pointwise);
    l->out[2] = l->length[2] = l->out_size;
    l->out[0] = l->out[1] = l->length[0] = l->length[1] = 1;
}

int64_t ht_pixel_bytes(const ht_quad_layout *l, int64_t images)
{
    const int64_t planes = ht_size_product(ht_size_product(images, l->group), l->quads);
    return ht_size_sum(ht_size_product(planes, l->plane), HT_PIXEL_SLACK);
}

int64_t ht_filter_bytes(const ht_quad_layout *l, int64_t maps)
{
    return ht_size_product(ht_size_sum(maps, 1), ht_size_product(HT_QUAD, ht_size_sum(l->steps, 2)));
}

int64_t ht_numbered_pixels(const ht_quad_layout *l)
{
    if (l->out_size == 0)
        return 0;
    const int64_t rows = ht_size_sum(ht_size_product(l->out[0] - 1, l->length[1]), l->out[1] - 1);
    return ht_size_sum(ht_size_product(rows, l->length[2]), l->out[2]);
}

int ht_depthwise_layout_of(ht_depthwise_layout *l, const int64_t *ints, int32_t count, const int64_t in[2])
{
    if (count != HT_CONV_INTEGER_INTS || ints[0] < 1 || ints[1] != 1 || ints[2] != 1 || ints[14] != 1)
        return 0;
    *l = (ht_depthwise_layout){.channels = ints[0], .taps = 1};
    int64_t reach[2]; /* rows and columns of a window */
    for (int d = 0; d < 2; d++) {
        l->kernel[d] = ints[3 + d];
        l->stride[d] = ints[6 + d];
        l->pad[d] = ints[9 + d];
        l->dilation[d] = ints[12 + d];
        l->out[d] = ints[15 + d];
        l->in[d] = in[d];
        if (l->kernel[d] < 1 || l->stride[d] < 1 || l->dilation[d] < 1 || l->pad[d] < 0 || l->out[d] < 0)
            return 0;
        l->taps = ht_size_product(l->taps, l->kernel[d]);
        reach[d] = ht_size_sum(ht_size_product(l->kernel[d] - 1, l->dilation[d]), 1);
    }
    l->quads = ht_quads(l->taps);
    l->blocks = ht_size_quotient(l->channels, HT_DEPTHWISE_CHANNELS);
    l->width = ht_size_sum(ht_size_product(max64(0, l->out[1] - 1), l->stride[1]), reach[1]);
    const int64_t rows = STRIP_BYTES / HT_DEPTHWISE_CHANNELS / l->width; /* of the input, that fit a strip */
    l->rows = min64(l->out[0], 1 + max64(0, rows - reach[0]) / l->stride[0]);
    l->strip = ht_size_sum(ht_size_product(max64(0, l->rows - 1), l->stride[0]), reach[0]);
    return 1;
}

int64_t ht_depthwise_bytes(const ht_depthwise_layout *l, int64_t multiplier)
{
    const int64_t blocks = ht_size_product(multiplier, ht_size_product(l->blocks, HT_DEPTHWISE_CHANNELS * HT_QUAD));
    return ht_size_product(blocks, ht_size_sum(ht_size_product(2, l->quads), 1));
}

int ht_depthwise_pays(const ht_depthwise_layout *l)
{
    const int64_t strip_bytes = ht_size_product(ht_size_product(l->strip, l->width), HT_DEPTHWISE_CHANNELS);
    return l->channels >= MIN_CHANNELS && l->out[0] > 0 && l->out[1] > 0 && l->in[0] > 0 && l->in[1] > 0 &&
           strip_bytes <= MAX_STRIP_BYTES;
}
