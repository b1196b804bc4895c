/* Depthwise convolution of small planes: a vector holds one pixel of as many channels as it has lanes.
 *
 * The planes of those channels are transposed into [padded pixel][channel], and so are the weights. Then every tap of a
 * pixel is one aligned vector, for any geometry, and the finished pixels are transposed back. Used for planes whose
 * rows are short, such as 7x7 or 14x14. Kernel rows outside the input are skipped if the weights of the vector's channels
 * are all finite: the product of an infinite weight or NaN and the padding is NaN.
 * Cost: pixels * taps / lanes multiply-adds of vectors; the transpositions move each input and output once.
 */
#include "conv.h"

#define FEW 4  /* pixels that are copied one by one in less time than it takes to transpose a vector of them */
#define TILE 8 /* neighboring pixels computed together: independent sums that hide the latency of multiply-adds */

typedef struct {
    int64_t height, width; /* of the padded plane that is read */
    float *in, *out, *w;
} buffers;

static int64_t span(const ht_conv *c, int d)
{
    return (c->out[d] - 1) * c->stride[d] + (c->kernel[d] - 1) * c->dilation[d] + 1;
}

/* Of the padded plane: rows have room for all inputs, also for those that no output reads. */
static int64_t width(const ht_conv *c) { return ht_max64(span(c, 2), c->pad[2] + c->in[2]); }

static int64_t round_up(int64_t n) { return ht_ceil_div(n, VF_LANES) * VF_LANES; }

int ht_conv_narrow_is_better(const ht_conv *c, int64_t groups)
{
    if (c->in_channels != 1 || c->out_channels != 1 || c->kernel[0] != 1 || c->in[0] != 1 || c->out[0] != 1 ||
        groups < VF_LANES || c->pad[0] != 0)
        return 0;
    const int64_t limit = HT_CONV_SCRATCH / 4 / VF_LANES;
    if (c->pixels > limit || c->in_plane > limit || c->taps > limit || span(c, 1) > limit || width(c) > limit ||
        span(c, 1) * width(c) + round_up(c->pixels) + round_up(c->taps) > limit)
        return 0;
    /* Vector operations per channel: 1 for a multiply-add with its load and 7 for a transposed vector, or more if the
     * padded plane exceeds the L1 cache, or if planes lie a multiple of 4 kB apart, so that their vectors evict each
     * other. */
    const int large = span(c, 1) * width(c) * VF_LANES * (int64_t)sizeof(float) > 32768;
    const double moved = (double)(round_up(c->in_plane) + round_up(c->pixels) + round_up(c->taps));
    const double transposed = c->in_plane % 1024 == 0 ? 10 : large ? 8 : 7;
    return ((double)(c->pixels * c->taps) * (large ? 1.25 : 1) + transposed * moved) / VF_LANES < ht_conv_depthwise_cost(c);
}

/* Computes pixels of one output row. `src`: input at the first pixel's first tap of kernel row ky0. */
HT_INLINE void tile(const ht_conv *c, const buffers *b, const float *src, int64_t ky0, int64_t ky1, vf bias, float *dst,
                    const int pixels)
{
    const int64_t row = c->dilation[1] * b->width * VF_LANES, tap = c->dilation[2] * VF_LANES;
    const int64_t step = c->stride[2] * VF_LANES, taps = c->kernel[2];
    const float *w = b->w + ky0 * taps * VF_LANES;
    vf acc[TILE];
#pragma GCC unroll 8
    for (int p = 0; p < pixels; p++)
        acc[p] = bias;
    for (int64_t ky = ky0; ky < ky1; ky++, src += row) {
        const float *at = src;
        for (int64_t kx = 0; kx < taps; kx++, at += tap, w += VF_LANES) {
            const vf weight = vf_load(w);
#pragma GCC unroll 8
            for (int p = 0; p < pixels; p++)
                acc[p] = vf_fma(weight, vf_load(at + p * step), acc[p]);
        }
    }
#pragma GCC unroll 8
    for (int p = 0; p < pixels; p++)
        vf_store(dst + p * VF_LANES, acc[p]);
}

#define SIZE(n)                                                                                                       \
    static void tile_##n(const ht_conv *c, const buffers *b, const float *src, int64_t ky0, int64_t ky1, vf bias,     \
                         float *dst)                                                                                  \
    {                                                                                                                 \
        tile(c, b, src, ky0, ky1, bias, dst, n);                                                                      \
    }
SIZE(1) SIZE(2) SIZE(3) SIZE(4) SIZE(5) SIZE(6) SIZE(7) SIZE(8)
typedef void (*tile_fn)(const ht_conv *, const buffers *, const float *, int64_t, int64_t, vf, float *);
static const tile_fn tiles[TILE] = {tile_1, tile_2, tile_3, tile_4, tile_5, tile_6, tile_7, tile_8};

/* block[i][lane] = src[lane * stride + i] for i < count <= VF_LANES and lane < lanes; other lanes zero. */
HT_INLINE void transpose_in(const float *src, int64_t stride, int64_t lanes, int64_t count, vf block[VF_LANES])
{
    const int whole = lanes == VF_LANES && count == VF_LANES;
#pragma GCC unroll 16
    for (int64_t i = 0; i < VF_LANES; i++)
        block[i] = HT_LIKELY(whole) ? vf_load(src + i * stride)
                   : i < lanes      ? vf_load_n(src + i * stride, count)
                                    : vf_set1(0.0f);
    vf_transpose(block);
}

/* Copies the inputs that are read into the padded plane, whose border is already zero. */
static void fill_plane(const ht_conv *c, const buffers *b, const float *x, int64_t lanes)
{
    const int64_t rows = ht_max64(0, ht_min64(c->in[1], b->height - c->pad[1])), pixels = rows * c->in[2];
    const int64_t gap = (b->width - c->in[2]) * VF_LANES;
    float *to = b->in + (c->pad[1] * b->width + c->pad[2]) * VF_LANES;
    int64_t left = c->in[2]; /* of the row */
#define NEXT (to += VF_LANES, --left == 0 ? (to += gap, left = c->in[2]) : 0)
    int64_t p = 0;
    for (; p + FEW < pixels; p += VF_LANES) {
        const int64_t count = ht_min64(VF_LANES, pixels - p);
        vf block[VF_LANES];
        transpose_in(x + p, c->in_plane, lanes, count, block);
#pragma GCC unroll 16
        for (int i = 0; i < VF_LANES; i++)
            if (i < count) {
                vf_store(to, block[i]);
                NEXT;
            }
    }
    for (; p < pixels; p++) {
        for (int64_t i = 0; i < VF_LANES; i++)
            to[i] = i < lanes ? x[i * c->in_plane + p] : 0.0f;
        NEXT;
    }
#undef NEXT
}

static void store_plane(const ht_conv *c, const buffers *b, int64_t first, int64_t lanes)
{
    const vf low = vf_set1(c->low), high = vf_set1(c->high);
    int64_t p = 0;
    for (; p + FEW < c->pixels; p += VF_LANES) {
        const int64_t count = ht_min64(VF_LANES, c->pixels - p);
        vf block[VF_LANES];
#pragma GCC unroll 16
        for (int i = 0; i < VF_LANES; i++)
            block[i] = vf_load(b->out + (p + i) * VF_LANES);
        vf_transpose(block);
#pragma GCC unroll 16
        for (int i = 0; i < VF_LANES; i++)
            if (i < lanes) {
                const int64_t at = (first + i) * c->pixels + p;
                vf v = block[i];
                if (c->addend)
                    v += vf_load_n(c->addend + at, count);
                v = vf_min(high, vf_max(low, v));
                if (count == VF_LANES)
                    vf_store(c->y + at, v);
                else
                    vf_store_n(c->y + at, count, v);
            }
    }
    for (; p < c->pixels; p++)
        for (int64_t i = 0; i < lanes; i++) {
            const int64_t at = (first + i) * c->pixels + p;
            float v = b->out[p * VF_LANES + i];
            if (c->addend)
                v += c->addend[at];
            v = v < c->low ? c->low : v;
            c->y[at] = v > c->high ? c->high : v;
        }
    if (!ht_conv_is_final(c))
        ht_conv_finish_channels(c, first, first + lanes);
}

/* skip: are kernel rows outside the input skipped? */
static void convolve(const ht_conv *c, const buffers *b, vf bias, int skip)
{
    const int64_t parts = ht_ceil_div(c->out[2], TILE);
    for (int64_t y = 0; y < c->out[1]; y++) {
        const int64_t iy = y * c->stride[1] - c->pad[1];
        int64_t ky0 = 0, ky1 = c->kernel[1];
        if (skip)
            ht_valid_range(iy, c->dilation[1], c->in[1], c->kernel[1], &ky0, &ky1);
        const float *row = b->in + (y * c->stride[1] + ky0 * c->dilation[1]) * b->width * VF_LANES;
        int64_t x = 0;
        for (int64_t part = 0; part < parts; part++) {
            const int64_t pixels = c->out[2] / parts + (part < c->out[2] % parts);
            tiles[pixels - 1](c, b, row + x * c->stride[2] * VF_LANES, ky0, ky1, bias,
                              b->out + (y * c->out[2] + x) * VF_LANES);
            x += pixels;
        }
    }
}

void ht_conv_narrow(const ht_conv *c, int64_t group0, int64_t group1)
{
    buffers b = {.height = span(c, 1), .width = width(c), .in = c->scratch};
    b.out = b.in + b.height * b.width * VF_LANES;
    b.w = b.out + round_up(c->pixels) * VF_LANES;
    for (int64_t i = 0; i < b.height * b.width * VF_LANES; i += VF_LANES)
        vf_store(b.in + i, vf_set1(0.0f));
    for (int64_t i = c->pixels * VF_LANES; i < round_up(c->pixels) * VF_LANES; i += VF_LANES)
        vf_store(b.out + i, vf_set1(0.0f)); /* these lanes are transposed together with the last pixels */
    for (int64_t g = group0; g < group1; g += VF_LANES) {
        const int64_t lanes = ht_min64(VF_LANES, group1 - g);
        vi bits = vi_set1(0); /* of products of weights with zero, which are zero or NaN */
        fill_plane(c, &b, c->x + g * c->in_plane, lanes);
        for (int64_t t = 0; t < c->taps; t += VF_LANES) {
            vf block[VF_LANES];
            transpose_in(c->w + g * c->taps + t, c->taps, lanes, ht_min64(VF_LANES, c->taps - t), block);
            for (int i = 0; i < VF_LANES; i++) {
                vf_store(b.w + (t + i) * VF_LANES, block[i]);
                bits = vi_or(bits, vf_bits(block[i] * vf_set1(0.0f)));
            }
        }
        convolve(c, &b, c->bias ? vf_load_n(c->bias + g, lanes) : vf_set1(0.0f),
                 !vm_any(vf_isnan(vi_as_float(bits))));
        store_plane(c, &b, g, lanes);
    }
}
