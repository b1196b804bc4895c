/* Convolution as a matrix product: weights x im2col matrix, for any shape.
 *
 * Row k of the im2col matrix is one (channel, kernel position), column p one output pixel. A block of at most
 * DEPTH rows and HT_BLOCK_N columns is gathered into panels (the layout of gemm_micro.h) and multiplied while it
 * is in the cache; the whole matrix is never stored. A 1x1 kernel without strides and padding reads the input's rows in
 * place, and the first tiles of the product pack them.
 * Cost: channels * M * kernel positions multiply-adds per pixel, and each input element is gathered once per kernel
 * position.
 */
#include "conv.h"

#if defined(__AVX512F__)
#define DEPTH 384 /* rows of a block: with HT_BLOCK_N columns 768 kB of the L2 cache, which has 1 MB or more */
#else
#define DEPTH 128
#endif

/* Row k - k0 of the panels of a B with `depth` rows. */
static void store_row(const float *row, int64_t panels, int64_t depth, float *dst)
{
    for (int64_t panel = 0; panel < panels; panel++)
        for (int v = 0; v < HT_PANEL; v += VF_LANES)
            vf_store(dst + panel * depth * HT_PANEL + v, vf_load(row + panel * HT_PANEL + v));
}

/* pack_pixels if ht_conv_points: finds once where the pixels lie in a plane. */
static void pack_points(const ht_conv *c, int64_t k0, int64_t k1, int64_t p0, int64_t p1, float *dst)
{
    const int64_t count = p1 - p0, panels = ht_ceil_div(count, HT_PANEL);
    int64_t points[HT_BLOCK_N];
    float row[HT_BLOCK_N] __attribute__((aligned(64)));
    for (int64_t p = count; p < panels * HT_PANEL; p++)
        row[p] = 0.0f;
    for (int64_t p = 0; p < count; p++) {
        const int64_t at = p0 + p, z = at / c->out[2] / c->out[1], y = at / c->out[2] % c->out[1], x = at % c->out[2];
        points[p] = (z * c->stride[0] * c->in[1] + y * c->stride[1]) * c->in[2] + x * c->stride[2];
    }
    for (int64_t k = k0; k < k1; k++, dst += HT_PANEL) {
        const float *plane = c->x + k * c->in_plane;
        for (int64_t p = 0; p < count; p++)
            row[p] = plane[points[p]];
        store_row(row, panels, k1 - k0, dst);
    }
}

/* Packs columns [p0, p1) of rows [k0, k1) of the im2col matrix as panels of a B with k1 - k0 rows. */
static void pack_pixels(const ht_conv *c, int64_t k0, int64_t k1, int64_t p0, int64_t p1, float *dst)
{
    const int64_t depth = k1 - k0, count = p1 - p0, panels = ht_ceil_div(count, HT_PANEL);
    float row[HT_BLOCK_N] __attribute__((aligned(64)));
    for (int64_t p = count; p < panels * HT_PANEL; p++)
        row[p] = 0.0f;
    const int64_t first_x = p0 % c->out[2], first_y = p0 / c->out[2] % c->out[1], first_z = p0 / c->out[2] / c->out[1];
    for (int64_t k = k0; k < k1; k++) {
        const int64_t tap = k % c->taps;
        const int64_t kx = tap % c->kernel[2], ky = tap / c->kernel[2] % c->kernel[1];
        const int64_t kz = tap / c->kernel[2] / c->kernel[1];
        const float *plane = c->x + k / c->taps * c->in_plane;
        int64_t x = first_x, y = first_y, z = first_z;
        for (int64_t p = 0; p < count;) {
            const int64_t run = ht_min64(c->out[2] - x, count - p);
            const int64_t iz = z * c->stride[0] - c->pad[0] + kz * c->dilation[0];
            const int64_t iy = y * c->stride[1] - c->pad[1] + ky * c->dilation[1];
            const int inside = iz >= 0 && iz < c->in[0] && iy >= 0 && iy < c->in[1];
            ht_sample_row(inside ? plane + (iz * c->in[1] + iy) * c->in[2] : NULL, c->in[2],
                          x * c->stride[2] - c->pad[2] + kx * c->dilation[2], c->stride[2], run, row + p);
            p += run;
            x = 0;
            if (++y == c->out[1]) {
                y = 0;
                z++;
            }
        }
        store_row(row, panels, depth, dst + (k - k0) * HT_PANEL);
    }
}

void ht_conv_wide(const ht_conv *c, int64_t p0, int64_t p1)
{
    const int64_t blocks = ht_max64(1, ht_ceil_div(c->depth_k, DEPTH)), step = ht_ceil_div(c->depth_k, blocks);
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t k0 = block * step, k1 = ht_min64(k0 + step, c->depth_k);
        const ht_epilogue e = {.bias = c->bias, .bias_row = 1, .addend = c->addend ? c->addend + p0 : NULL,
                               .addend_row = c->pixels, .alpha = 1, .beta = 1, .low = c->low, .high = c->high};
        const ht_tile t = {.a = c->w + k0 * HT_PANEL, .a_row = 1, .a_k = HT_PANEL, .b = c->scratch,
                           .b_k = HT_PANEL, .b_panel = (k1 - k0) * HT_PANEL, .c = c->y + p0, .c_row = c->pixels,
                           .k = k1 - k0, .accumulate = block > 0, .next = block < blocks - 1 ? c->w + k1 * HT_PANEL : NULL,
                           .epilogue = block == blocks - 1 ? &e : NULL};
        if (ht_conv_flat(c)) {
            ht_gemm_packing(&t, c->x + k0 * c->in_plane + p0, c->in_plane, c->scratch, c->depth_k * HT_PANEL,
                            c->out_channels, p1 - p0);
        } else {
            (ht_conv_points(c) ? pack_points : pack_pixels)(c, k0, k1, p0, p1, c->scratch);
            ht_gemm_block(&t, c->depth_k * HT_PANEL, c->out_channels, p1 - p0);
        }
    }
    if (!ht_unary_is_clip(c->activation))
        for (int64_t m = 0; m < c->out_channels; m++) {
            float *y = c->y + m * c->pixels + p0;
            ht_unary_f32(c->activation, c->p0, c->p1, y, y, p1 - p0);
        }
}
