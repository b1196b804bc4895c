/* Depthwise convolution: one input channel gives each output channel.
 *
 * Vectors run along an output row. The input rows that a block of output rows reads are first copied with their zeros,
 * and split by column modulo the stride, so that every tap of a vector of outputs is one contiguous load whatever
 * the stride. Cost: pixels * taps multiply-adds, each with one load; the copy moves every input once or twice.
 */
#include "conv.h"

#define COPY_FLOATS (HT_CONV_SCRATCH / 4)
#define MAX_TAPS 1024

typedef struct {
    int64_t rows, height;       /* output rows per block; rows per plane of the copy */
    ht_split split;
} layout;

static int block_layout(const ht_conv *c, layout *l)
{
    const int64_t width = (c->out[2] - 1) * c->stride[2] + (c->kernel[2] - 1) * c->dilation[2] + 1;
    l->split = ht_split_for(width, c->stride[2]);
    for (l->rows = c->out[1];; l->rows = ht_ceil_div(l->rows, 2)) {
        l->height = (l->rows - 1) * c->stride[1] + (c->kernel[1] - 1) * c->dilation[1] + 1;
        if (c->kernel[0] * l->height * l->split.row <= COPY_FLOATS - 8 * VF_LANES) /* vectors may read past the end */
            return 1;
        if (l->rows == 1)
            return 0;
    }
}

int ht_conv_depthwise_fits(const ht_conv *c)
{
    layout l;
    if (c->in_channels != 1 || c->taps > MAX_TAPS)
        return 0;
    for (int d = 0; d < 3; d++)
        if (c->dilation[d] > (1 << 20) || c->stride[d] > (1 << 20))
            return 0;
    return block_layout(c, &l);
}

HT_INLINE void row_vectors(const ht_conv *c, const float *src, const int32_t *offsets, const float *w, const int taps,
                           float bias, const float *addend, float *dst, int64_t count, const int vectors)
{
    vf acc[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        acc[v] = vf_set1(bias);
#pragma GCC unroll 9
    for (int t = 0; t < taps; t++) {
        const vf weight = vf_set1(w[t]);
        const float *p = src + offsets[t];
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            acc[v] = vf_fma(weight, vf_load(p + v * VF_LANES), acc[v]);
    }
    const vf low = vf_set1(c->low), high = vf_set1(c->high);
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        const int64_t left = ht_min64(VF_LANES, count - v * VF_LANES);
        if (left <= 0)
            return;
        if (addend)
            acc[v] += vf_load_n(addend + v * VF_LANES, left);
        acc[v] = vf_min(high, vf_max(low, acc[v]));
        if (HT_LIKELY(left == VF_LANES))
            vf_store(dst + v * VF_LANES, acc[v]);
        else
            vf_store_n(dst + v * VF_LANES, left, acc[v]);
    }
}

HT_INLINE void output_row(const ht_conv *c, const float *src, const int32_t *offsets, const float *w, const int taps,
                          float bias, const float *addend, float *dst, int64_t count)
{
    int64_t x = 0;
    for (; x + 2 * VF_LANES < count; x += 4 * VF_LANES)
        row_vectors(c, src + x, offsets, w, taps, bias, addend ? addend + x : NULL, dst + x, count - x, 4);
    for (; x + VF_LANES < count; x += 2 * VF_LANES)
        row_vectors(c, src + x, offsets, w, taps, bias, addend ? addend + x : NULL, dst + x, count - x, 2);
    for (; x < count; x += VF_LANES)
        row_vectors(c, src + x, offsets, w, taps, bias, addend ? addend + x : NULL, dst + x, count - x, 1);
}

static void copy_rows(const ht_conv *c, const layout *l, int64_t z, int64_t y, int64_t height)
{
    const int64_t in_y = y * c->stride[1] - c->pad[1];
    for (int64_t kz = 0; kz < c->kernel[0]; kz++) {
        const int64_t iz = z * c->stride[0] - c->pad[0] + kz * c->dilation[0];
        float *dst = c->scratch + kz * l->height * l->split.row;
        for (int64_t iy = in_y; iy < in_y + height; iy++, dst += l->split.row) {
            const int inside = iz >= 0 && iz < c->in[0] && iy >= 0 && iy < c->in[1];
            ht_split_row(&l->split, inside ? c->x + (iz * c->in[1] + iy) * c->in[2] : NULL, c->in[2], -c->pad[2],
                         c->stride[2], 0.0f, dst);
        }
    }
}

void ht_conv_depthwise(const ht_conv *c)
{
    layout l;
    int32_t offsets[MAX_TAPS];
    block_layout(c, &l);
    int64_t tap = 0;
    for (int64_t kz = 0; kz < c->kernel[0]; kz++)
        for (int64_t ky = 0; ky < c->kernel[1]; ky++)
            for (int64_t kx = 0; kx < c->kernel[2]; kx++)
                offsets[tap++] = (int32_t)((kz * l.height + ky * c->dilation[1]) * l.split.row +
                                           ht_split_at(&l.split, kx * c->dilation[2], c->stride[2]));
    for (int64_t z = 0; z < c->out[0]; z++)
        for (int64_t y = 0; y < c->out[1]; y += l.rows) {
            const int64_t rows = ht_min64(l.rows, c->out[1] - y);
            copy_rows(c, &l, z, y, l.height - (l.rows - rows) * c->stride[1]);
            for (int64_t m = 0; m < c->out_channels; m++) {
                const float *w = c->w + m * c->taps;
                const float bias = c->bias ? c->bias[m] : 0.0f;
                for (int64_t r = 0; r < rows; r++) {
                    const int64_t at = m * c->pixels + (z * c->out[1] + y + r) * c->out[2];
                    const float *src = c->scratch + r * c->stride[1] * l.split.row;
                    const float *addend = c->addend ? c->addend + at : NULL;
                    if (c->taps == 9)
                        output_row(c, src, offsets, w, 9, bias, addend, c->y + at, c->out[2]);
                    else
                        output_row(c, src, offsets, w, (int)c->taps, bias, addend, c->y + at, c->out[2]);
                }
                if (!ht_unary_is_clip(c->activation)) {
                    float *out = c->y + m * c->pixels + (z * c->out[1] + y) * c->out[2];
                    ht_unary_f32(c->activation, c->p0, c->p1, out, out, rows * c->out[2]);
                }
            }
        }
}
