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
#include "tiled_product.h"

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

/* From output channel m and pixel p on. */
static ht_epilogue epilogue_of(const ht_conv *c, int64_t m, int64_t p)
{
    return (ht_epilogue){.bias = c->bias ? c->bias + m : NULL, .bias_row = 1,
                         .addend = c->addend ? c->addend + m * c->pixels + p : NULL, .addend_row = c->pixels,
                         .alpha = 1, .beta = 1, .low = c->low, .high = c->high};
}

#if HT_TILES
#define TILED_COLUMNS 256 /* pixels that are packed */
_Static_assert(4 * HT_TILED_K * TILED_COLUMNS + HT_SCRATCH_TILED(TILED_COLUMNS, HT_TILED_K) <= HT_CONV_SCRATCH, "im2col, then tiles");
_Static_assert(HT_SCRATCH_TILED(HT_TILED_HELD, HT_TILED_K) <= HT_CONV_SCRATCH, "tiles alone");
_Static_assert(4 * (HT_TILED_K * HT_BLOCK_N + HT_TILED_MOST_K * HT_TILED_GROUP) <= HT_CONV_SCRATCH, "what add_plain packs");

/* Output channels [m, m + rows) of a block of wide_tiled, as float32, at most HT_TILED_GROUP. packed: the im2col block, or
 * memory for one of at most HT_BLOCK_N pixels. weights: memory for the channels' panels. */
static void add_plain(const ht_conv *c, int64_t m, int64_t rows, int64_t p0, int64_t p1, int64_t k0, int64_t k1,
                      float *packed, float *weights)
{
    HT_ASSERT(p1 - p0 <= HT_BLOCK_N && rows <= HT_TILED_GROUP);
    const ht_epilogue e = epilogue_of(c, m, p0);
    const int64_t k = k1 - k0, a_panel = (c->plain_weights ? k : c->depth_k) * HT_PANEL;
    if (c->plain_weights)
        ht_pack_panels(c->w + m * c->depth_k + k0, c->depth_k, 1, k, rows, weights, k);
    const ht_tile t = {.a = c->plain_weights ? weights : c->w + m * c->depth_k + k0 * HT_PANEL, .a_row = 1,
                       .a_k = HT_PANEL, .b = packed, .b_k = HT_PANEL, .b_panel = k * HT_PANEL,
                       .c = c->y + m * c->pixels + p0, .c_row = c->pixels, .k = k, .accumulate = k0 > 0,
                       .epilogue = k1 == c->depth_k ? &e : NULL};
    if (ht_conv_flat(c))
        ht_gemm_packing(&t, c->x + k0 * c->in_plane + p0, c->in_plane, packed, a_panel, rows, p1 - p0);
    else
        ht_gemm_block(&t, a_panel, rows, p1 - p0);
}

/* Pixels [p0, p1). Pixels are held, so that outputs are written along rows: planes are larger than caches. */
static void wide_tiled(const ht_conv *c, int64_t p0, int64_t p1)
{
    uint8_t plain[HT_TILED_MOST_ROWS / HT_TILED_GROUP];
    const int flat = ht_conv_flat(c);
    float *const packed = c->scratch, *const tiles = packed + (flat ? 0 : HT_TILED_K * TILED_COLUMNS);
    const int64_t most_pixels = flat ? HT_TILED_HELD : TILED_COLUMNS;
    const ht_lanes w = c->has_parts       ? ht_lanes_of_parts(c->w, c->depth_k)
                       : c->plain_weights ? (ht_lanes){c->w, c->depth_k * HT_PANEL, c->depth_k, 1, NULL, 0}
                                          : (ht_lanes){c->w, c->depth_k * HT_PANEL, 1, HT_PANEL, NULL, 0};
    for (int64_t pixel = p0; pixel < p1; pixel += most_pixels)
        for (int64_t k0 = 0; k0 < c->depth_k; k0 += c->tiled_k) {
            const int64_t k1 = ht_min64(k0 + c->tiled_k, c->depth_k), k = k1 - k0;
            const int64_t end = ht_min64(p1, pixel + most_pixels), pixels = end - pixel;
            const ht_lanes b = flat ? (ht_lanes){c->x + k0 * c->in_plane + pixel, HT_PANEL, 1, c->in_plane, NULL, 0}
                                    : (ht_lanes){packed, k * HT_PANEL, 1, HT_PANEL, NULL, 0};
            if (!flat)
                (ht_conv_points(c) ? pack_points : pack_pixels)(c, k0, k1, pixel, end, packed);
            ht_tiled t;
            int holds = 0;
            for (int64_t channel = 0; channel < c->out_channels; channel += HT_TILED_MOST_ROWS) {
                if (!holds)
                    ht_tiled_hold(&t, &b, pixels, k, 0, tiles);
                holds = 1;
                const int64_t channels = ht_min64(HT_TILED_MOST_ROWS, c->out_channels - channel);
                const ht_lanes a = ht_lanes_from(&w, channel, k0);
                const ht_epilogue e = epilogue_of(c, channel, pixel);
                if (HT_LIKELY(!ht_tiled_pass(&t, &a, channels, c->y + channel * c->pixels + pixel, c->pixels, k0 > 0,
                                             k1 == c->depth_k ? &e : NULL, plain)))
                    continue;
                holds = 0; /* add_plain packs where t lies */
                const int64_t most = flat ? ht_min64(HT_BLOCK_N, HT_TILED_K * HT_BLOCK_N / k / HT_PANEL * HT_PANEL) : TILED_COLUMNS;
                for (int64_t row = 0; row < channels; row += HT_TILED_GROUP)
                    for (int64_t p = pixel; plain[row / HT_TILED_GROUP] && p < end; p += most)
                        add_plain(c, channel + row, ht_min64(HT_TILED_GROUP, channels - row), p, ht_min64(end, p + most),
                                  k0, k1, packed, packed + HT_TILED_K * (flat ? HT_BLOCK_N : TILED_COLUMNS));
            }
        }
}
#endif

void ht_conv_wide(const ht_conv *c, int64_t p0, int64_t p1)
{
    int64_t blocks = ht_max64(1, ht_ceil_div(c->depth_k, DEPTH));
    const int64_t step = ht_ceil_div(c->depth_k, blocks);
#if HT_TILES
    if (c->tiled) {
        wide_tiled(c, p0, p1);
        blocks = 0;
    }
#endif
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t k0 = block * step, k1 = ht_min64(k0 + step, c->depth_k);
        const ht_epilogue e = epilogue_of(c, 0, p0);
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
