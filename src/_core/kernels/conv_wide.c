/* Convolution as a matrix product: weights x im2col matrix, for any shape.
 *
 * Row k of the im2col matrix is one (channel, kernel position), column p one output pixel. A block of at most
 * DEPTH rows and HT_BLOCK_N columns is gathered into panels (the layout of gemm_micro.h) and multiplied while it
 * is in the cache; the whole matrix is never stored. With AVX-512, a vector of pixels is loaded at a time, also across the
 * ends of rows. A 1x1 kernel without strides and padding reads the input's rows in place, and the first tiles of the product
 * pack them; one to three output channels are summed without tiles.
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

/* pack if ht_conv_points: finds once where the pixels lie in a plane. */
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

/* pack for any shape: the pixels of an output row at a time. Where they lie in a plane depends on the kernel position
 * alone, so it is found once for all channels. */
static void pack_pixels(const ht_conv *c, int64_t k0, int64_t k1, int64_t p0, int64_t p1, float *dst)
{
    const int64_t depth = k1 - k0, count = p1 - p0, panels = ht_ceil_div(count, HT_PANEL);
    float row[HT_BLOCK_N + VF_LANES] __attribute__((aligned(64)));
    /* The part of a row of outputs that is packed: the input of its first pixel, and which pixels lie inside the input. */
    struct {
        int64_t at;
        int32_t pixels, low, high;
    } parts[HT_BLOCK_N];
    for (int64_t first = k0; first < ht_min64(k1, k0 + c->taps); first++) {
        const int64_t tap = first % c->taps;
        const int64_t kx = tap % c->kernel[2], ky = tap / c->kernel[2] % c->kernel[1];
        const int64_t kz = tap / c->kernel[2] / c->kernel[1];
        int64_t x = p0 % c->out[2], y = p0 / c->out[2] % c->out[1], z = p0 / c->out[2] / c->out[1], num = 0;
        for (int64_t p = 0; p < count; num++) {
            const int64_t pixels = ht_min64(c->out[2] - x, count - p);
            const int64_t iz = z * c->stride[0] - c->pad[0] + kz * c->dilation[0];
            const int64_t iy = y * c->stride[1] - c->pad[1] + ky * c->dilation[1];
            const int64_t ix = x * c->stride[2] - c->pad[2] + kx * c->dilation[2];
            int64_t low = pixels, high = pixels;
            if (iz >= 0 && iz < c->in[0] && iy >= 0 && iy < c->in[1])
                ht_valid_range(ix, c->stride[2], c->in[2], pixels, &low, &high);
            parts[num].at = (iz * c->in[1] + iy) * c->in[2] + ix;
            parts[num].pixels = (int32_t)pixels;
            parts[num].low = (int32_t)low;
            parts[num].high = (int32_t)high;
            p += pixels;
            x = 0;
            if (++y == c->out[1]) {
                y = 0;
                z++;
            }
        }
        for (int64_t k = first; k < k1; k += c->taps) {
            const float *plane = c->x + k / c->taps * c->in_plane;
            float *to = row;
            for (int64_t i = 0; i < num; to += parts[i].pixels, i++)
                ht_sample_within(plane, parts[i].at, c->stride[2], parts[i].low, parts[i].high, parts[i].pixels, to);
            for (int64_t p = count; p < panels * HT_PANEL; p++)
                row[p] = 0.0f;
            store_row(row, panels, depth, dst + (k - k0) * HT_PANEL);
        }
    }
}

#if HT_CONV_VECTORS
#define MOST_WINDOWS 32 /* kernel positions along depth and height, or along width */

/* Few enough kernel positions, and numbers of rows and elements, also outside the input, that fit 32 bits. */
static int packs_windows(const ht_conv *c)
{
    double reach = 0, step = 1;
    for (int d = 2; d >= 0; d--) {
        const double first = (double)c->pad[d], last = (double)(c->out[d] - 1) * (double)c->stride[d];
        reach += step * (fmax(first, last) + (double)(c->kernel[d] - 1) * (double)c->dilation[d]);
        step *= (double)ht_max64(1, c->in[d]);
    }
    return c->kernel[0] * c->kernel[1] <= MOST_WINDOWS && c->kernel[2] <= MOST_WINDOWS && fmax(reach, step) <= INT32_MAX / 2;
}

/* pack, pixels by the vector: where they lie in a plane, and which of them lie in the input, depends on the kernel
 * position alone, so it is found once for all channels. */
static void pack_windows(const ht_conv *c, int64_t k0, int64_t k1, int64_t p0, int64_t p1, float *dst)
{
    enum { MOST_VECTORS = HT_BLOCK_N / VF_LANES, MOST_PIECES = 4 };
    _Static_assert(HT_PANEL == VF_LANES, "a vector of pixels is a row of a panel");
    const int64_t depth = k1 - k0, vectors = ht_ceil_div(p1 - p0, VF_LANES);
    int32_t at[HT_BLOCK_N];                            /* of kernel position 0, from the beginning of a plane */
    /* The pieces of a vector that lie in one row each: their lanes, and where lane 0 would be, from the vector's first pixel. No
     * pieces: strides above 2, or too many. */
    uint8_t num_pieces[MOST_VECTORS];
    vm lanes_of[MOST_VECTORS][MOST_PIECES];
    int32_t jumps[MOST_VECTORS][MOST_PIECES];
    const int32_t step = (int32_t)ht_min64(c->stride[2], 3);
    vm rows[MOST_WINDOWS][MOST_VECTORS], columns[MOST_WINDOWS][MOST_VECTORS]; /* which pixels lie inside the input */
    int64_t x = p0 % c->out[2], y = p0 / c->out[2] % c->out[1], z = p0 / c->out[2] / c->out[1];
    for (int64_t v = 0; v < vectors; v++) {
        int32_t xs[VF_LANES] = {0}, ys[VF_LANES] = {0}, zs[VF_LANES] = {0};
        const int64_t count = ht_min64(VF_LANES, p1 - p0 - v * VF_LANES);
        for (int64_t i = 0; i < count; i++) {
            xs[i] = (int32_t)(x * c->stride[2] - c->pad[2]);
            ys[i] = (int32_t)(y * c->stride[1] - c->pad[1]);
            zs[i] = (int32_t)(z * c->stride[0] - c->pad[0]);
            if (++x == c->out[2]) {
                x = 0;
                if (++y == c->out[1]) {
                    y = 0;
                    z++;
                }
            }
        }
        const vi x_at = _mm512_loadu_si512(xs), y_at = _mm512_loadu_si512(ys), z_at = _mm512_loadu_si512(zs);
        const vi width = vi_set1((int32_t)c->in[2]), height = vi_set1((int32_t)c->in[1]);
        const vi all = vi_add(_mm512_mullo_epi32(vi_add(_mm512_mullo_epi32(z_at, height), y_at), width), x_at);
        _mm512_storeu_si512(at + v * VF_LANES, all);
        const vm exist = vm_first(count);
        num_pieces[v] = 0;
        for (int64_t i = 0, begin = 0; i < count && step <= 2; i++) {
            if (i + 1 < count && at[v * VF_LANES + i + 1] - at[v * VF_LANES + i] == step)
                continue;
            if (num_pieces[v] == MOST_PIECES) {
                num_pieces[v] = 0;
                break;
            }
            lanes_of[v][num_pieces[v]] = vm_range(begin, i + 1);
            jumps[v][num_pieces[v]++] = at[v * VF_LANES + begin] - at[v * VF_LANES] - (int32_t)begin * step;
            begin = i + 1;
        }
        for (int64_t i = 0; i < c->kernel[0] * c->kernel[1]; i++) {
            const vi down = vi_set1((int32_t)(i % c->kernel[1] * c->dilation[1]));
            const vi deep = vi_set1((int32_t)(i / c->kernel[1] * c->dilation[0]));
            rows[i][v] = _mm512_mask_cmplt_epu32_mask(exist, vi_add(y_at, down), height) &
                         _mm512_cmplt_epu32_mask(vi_add(z_at, deep), vi_set1((int32_t)c->in[0]));
        }
        for (int64_t i = 0; i < c->kernel[2]; i++)
            columns[i][v] = _mm512_mask_cmplt_epu32_mask(exist, vi_add(x_at, vi_set1((int32_t)(i * c->dilation[2]))), width);
    }
    int64_t column = k0 % c->kernel[2], row = k0 / c->kernel[2] % (c->kernel[0] * c->kernel[1]);
    const float *plane = c->x + k0 / c->taps * c->in_plane;
    for (int64_t k = k0; k < k1; k++, dst += HT_PANEL) {
        const int64_t line = row / c->kernel[1] * c->dilation[0] * c->in[1] + row % c->kernel[1] * c->dilation[1];
        const float *from = plane + line * c->in[2] + column * c->dilation[2];
        for (int64_t v = 0; v < vectors; v++) {
            const vm inside = vm_and(rows[row][v], columns[column][v]);
            vf pixels = vf_set1(0.0f);
            if (HT_UNLIKELY(num_pieces[v] == 0))
                pixels = _mm512_mask_i32gather_ps(pixels, inside, _mm512_loadu_si512(at + v * VF_LANES), from, 4);
            for (int i = 0; i < num_pieces[v]; i++) {
                const vm piece = vm_and(inside, lanes_of[v][i]);
                const float *first = from + at[v * VF_LANES] + jumps[v][i];
                if (HT_LIKELY(step == 1)) {
                    pixels = _mm512_mask_loadu_ps(pixels, piece, first);
                } else {
                    const uint32_t both = _pdep_u32(piece, 0x55555555);
                    const vf low = vf_load_where(first, (vm)both);
                    const vf high = vf_load_where(first + VF_LANES, (vm)(both >> VF_LANES));
                    pixels = _mm512_mask_mov_ps(pixels, piece, vf_even(low, high));
                }
            }
            vf_store(dst + v * depth * HT_PANEL, pixels);
        }
        if (++column == c->kernel[2]) {
            column = 0;
            if (++row == c->kernel[0] * c->kernel[1]) {
                row = 0;
                plane += c->in_plane;
            }
        }
    }
}
#endif

/* Packs columns [p0, p1) of rows [k0, k1) of the im2col matrix as panels of a B with k1 - k0 rows. */
static void pack(const ht_conv *c, int64_t k0, int64_t k1, int64_t p0, int64_t p1, float *dst)
{
#if HT_CONV_VECTORS
    if (packs_windows(c)) {
        pack_windows(c, k0, k1, p0, p1, dst);
        return;
    }
#endif
    (ht_conv_points(c) ? pack_points : pack_pixels)(c, k0, k1, p0, p1, dst);
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

/* Output channels [m, m + rows) of wide_block, as float32, at most HT_TILED_GROUP. packed: the im2col block, or
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

/* The same for the groups of `rows` output channels that `plain` names, and any number of pixels. packed: the im2col block from
 * p0 on, or memory for one. */
static void add_plain_groups(const ht_conv *c, const uint8_t *plain, int64_t m, int64_t rows, int64_t p0, int64_t p1,
                             int64_t k0, int64_t k1, float *packed, float *weights)
{
    const int64_t k = k1 - k0;
    const int64_t most = ht_conv_flat(c) ? ht_min64(HT_BLOCK_N, HT_TILED_K * HT_BLOCK_N / k / HT_PANEL * HT_PANEL) : TILED_COLUMNS;
    for (int64_t row = 0; row < rows; row += HT_TILED_GROUP)
        for (int64_t p = p0; plain[row / HT_TILED_GROUP] && p < p1; p += most)
            add_plain(c, m + row, ht_min64(HT_TILED_GROUP, rows - row), p, ht_min64(p1, p + most), k0, k1, packed, weights);
}

/* From output channel m on, the end of those for which a span has the same pixels: [*p0, *p1). */
static int64_t same_pixels(const ht_conv *c, const ht_conv_span *s, int64_t m, int64_t *p0, int64_t *p1)
{
    *p0 = m == s->m0 ? s->p0 : s->begin;
    *p1 = m == s->m1 ? s->p1 : s->end;
    const int is_part = *p0 > s->begin || m == s->m1;
    return ht_min64(c->out_channels, is_part ? m + HT_TILED_GROUP : ht_min64(s->m1, m + HT_TILED_MOST_ROWS));
}

static int64_t end_of(const ht_conv *c, const ht_conv_span *s)
{
    return ht_min64(c->out_channels, s->p1 > s->begin ? s->m1 + HT_TILED_GROUP : s->m1);
}

/* The pixels [pixel, end) of a span. They are held, so that outputs are written along rows: planes are larger than caches. */
static void wide_block(const ht_conv *c, const ht_conv_span *span, int64_t pixel, int64_t end)
{
    uint8_t plain[HT_TILED_MOST_ROWS / HT_TILED_GROUP];
    const int flat = ht_conv_flat(c);
    const int64_t last = end_of(c, span);
    float *const packed = c->scratch, *const tiles = packed + (flat ? 0 : HT_TILED_K * TILED_COLUMNS);
    const ht_lanes w = c->has_parts       ? ht_lanes_of_parts(c->w, c->depth_k)
                       : c->plain_weights ? (ht_lanes){c->w, c->depth_k * HT_PANEL, c->depth_k, 1, NULL, 0}
                                          : (ht_lanes){c->w, c->depth_k * HT_PANEL, 1, HT_PANEL, NULL, 0};
    for (int64_t k0 = 0; k0 < c->depth_k; k0 += c->tiled_k) {
        const int64_t k1 = ht_min64(k0 + c->tiled_k, c->depth_k), k = k1 - k0;
        const ht_lanes b = flat ? (ht_lanes){c->x + k0 * c->in_plane + pixel, HT_PANEL, 1, c->in_plane, NULL, 0}
                                : (ht_lanes){packed, k * HT_PANEL, 1, HT_PANEL, NULL, 0};
        if (!flat)
            pack(c, k0, k1, pixel, end, packed);
        ht_tiled held;
        int holds = 0;
        for (int64_t m = span->m0, m1; m < last; m = m1) {
            int64_t p0, p1;
            m1 = same_pixels(c, span, m, &p0, &p1);
            p0 = ht_max64(p0, pixel);
            p1 = ht_min64(p1, end);
            if (p0 >= p1)
                continue;
            if (!holds)
                ht_tiled_hold(&held, &b, end - pixel, k, 0, tiles);
            holds = 1;
            const ht_tiled t = ht_tiled_some(&held, p0 - pixel, p1 - p0);
            const ht_lanes a = ht_lanes_from(&w, m, k0);
            const ht_epilogue e = epilogue_of(c, m, p0);
            if (HT_LIKELY(!ht_tiled_pass(&t, &a, m1 - m, c->y + m * c->pixels + p0, c->pixels, k0 > 0,
                                         k1 == c->depth_k ? &e : NULL, plain)))
                continue;
            holds = 0; /* add_plain packs where it lies */
            add_plain_groups(c, plain, m, m1 - m, p0, p1, k0, k1, packed + (flat ? 0 : (p0 - pixel) * k),
                             packed + HT_TILED_K * (flat ? HT_BLOCK_N : TILED_COLUMNS));
        }
    }
}

void ht_conv_wide_tiled(const ht_conv *c, const ht_conv_span *span)
{
    const int64_t most = ht_conv_flat(c) ? HT_TILED_HELD : TILED_COLUMNS, last = end_of(c, span), pixels = span->end - span->begin;
    if (pixels <= 0)
        return;
    const int64_t step = ht_ceil_div(ht_ceil_div(pixels, ht_ceil_div(pixels, most)), HT_TILED_GROUP) * HT_TILED_GROUP;
    for (int64_t pixel = span->begin; pixel < span->end && span->m0 < last; pixel += step)
        wide_block(c, span, pixel, ht_min64(span->end, pixel + step));
    for (int64_t m = span->m0, m1, p0, p1; m < last && !ht_conv_is_final(c); m = m1) {
        m1 = same_pixels(c, span, m, &p0, &p1);
        for (int64_t i = m; i < m1; i++)
            ht_conv_finish(c, i, i * c->pixels + p0, p1 - p0);
    }
}
#endif

/* The products of a term. An even number of terms divides evenly among an even number of threads. */
static int64_t term_length(const ht_conv *c)
{
    const int64_t terms = ht_ceil_div(c->depth_k, DEPTH);
    return ht_max64(1, ht_ceil_div(c->depth_k, terms > 1 ? (terms + 1) / 2 * 2 : 1));
}

int64_t ht_conv_wide_terms(const ht_conv *c) { return ht_max64(1, ht_ceil_div(c->depth_k, term_length(c))); }

/* Up to FEW_CHANNELS output channels of a 1x1 kernel, which need no packed tiles: rows of x from their beginning to their end
 * are added to rows of sums in the L1 cache, eight at a time. Sums have the same terms in the same order as those of tiles. */
#define FEW_CHANNELS 3
HT_INLINE void add_rows(const ht_tile *t, const float *x, int64_t x_row, int64_t k, int64_t pixels,
                        float sums[FEW_CHANNELS][HT_BLOCK_N], const int channels, const int rows)
{
    const float *w = t->a + k * HT_PANEL;
    for (int64_t p = 0; p < pixels; p += VF_LANES) {
        const int64_t left = pixels - p;
        vf sum[FEW_CHANNELS];
#pragma GCC unroll 3
        for (int m = 0; m < channels; m++)
            sum[m] = k > 0 ? vf_load(sums[m] + p) : vf_set1(0.0f);
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++) {
            const vf v = HT_LIKELY(left >= VF_LANES) ? vf_load(x + i * x_row + p) : vf_load_n(x + i * x_row + p, left);
#pragma GCC unroll 3
            for (int m = 0; m < channels; m++)
                sum[m] = vf_fma(vf_set1(w[i * HT_PANEL + m]), v, sum[m]);
        }
#pragma GCC unroll 3
        for (int m = 0; m < channels; m++)
            vf_store(sums[m] + p, sum[m]);
    }
}

HT_INLINE void few_channels(const ht_tile *t, const float *x, int64_t x_row, int64_t pixels, const int channels)
{
    enum { TOGETHER = 8 };
    float sums[FEW_CHANNELS][HT_BLOCK_N];
    const ht_epilogue none = {.low = -INFINITY, .high = INFINITY}, *e = t->epilogue ? t->epilogue : &none;
    int64_t k = 0;
    for (; k + TOGETHER <= t->k; k += TOGETHER)
        add_rows(t, x + k * x_row, x_row, k, pixels, sums, channels, TOGETHER);
    for (; k < t->k; k++)
        add_rows(t, x + k * x_row, x_row, k, pixels, sums, channels, 1);
    for (int m = 0; m < channels; m++) {
        float *c = t->c + m * t->c_row;
        const float *addend = e->addend ? e->addend + m * e->addend_row : NULL;
        const vf bias = vf_set1(e->bias ? e->bias[m * e->bias_row] : 0.0f);
        for (int64_t p = 0; p < pixels; p += VF_LANES) {
            const int64_t left = ht_min64(VF_LANES, pixels - p);
            vf sum = t->k > 0 ? vf_load(sums[m] + p) : vf_set1(0.0f);
            if (t->accumulate)
                sum += vf_load_n(c + p, left);
            if (e->bias)
                sum += bias;
            if (addend)
                sum += vf_load_n(addend + p, left);
            sum = vf_min(vf_set1(e->high), vf_max(vf_set1(e->low), sum));
            if (left == VF_LANES)
                vf_store(c + p, sum);
            else
                vf_store_n(c + p, left, sum);
        }
    }
}

/* One term of the sums at pixels [p0, p1). t: where it goes, and what is added to it. */
static void multiply_term(const ht_conv *c, int64_t term, int64_t p0, int64_t p1, ht_tile t)
{
    const int64_t k0 = term * term_length(c), k1 = ht_min64(k0 + term_length(c), c->depth_k);
    t.a = c->w + k0 * HT_PANEL;
    t.a_row = 1;
    t.a_k = t.b_k = HT_PANEL;
    t.b = c->scratch;
    t.k = k1 - k0;
    t.b_panel = t.k * HT_PANEL;
    t.next = k1 < c->depth_k ? c->w + k1 * HT_PANEL : NULL;
    const float *x = c->x + k0 * c->in_plane + p0;
    if (ht_conv_flat(c) && c->out_channels == 1) {
        few_channels(&t, x, c->in_plane, p1 - p0, 1);
    } else if (ht_conv_flat(c) && c->out_channels == 2) {
        few_channels(&t, x, c->in_plane, p1 - p0, 2);
    } else if (ht_conv_flat(c) && c->out_channels == 3) {
        few_channels(&t, x, c->in_plane, p1 - p0, 3);
    } else if (ht_conv_flat(c)) {
        ht_gemm_packing(&t, x, c->in_plane, c->scratch, c->depth_k * HT_PANEL, c->out_channels, p1 - p0);
    } else {
        pack(c, k0, k1, p0, p1, c->scratch);
        ht_gemm_block(&t, c->depth_k * HT_PANEL, c->out_channels, p1 - p0);
    }
}

void ht_conv_wide(const ht_conv *c, int64_t p0, int64_t p1)
{
    const int64_t terms = ht_conv_wide_terms(c);
    const ht_epilogue e = epilogue_of(c, 0, p0);
    for (int64_t term = 0; term < terms; term++)
        multiply_term(c, term, p0, p1, (ht_tile){.c = c->y + p0, .c_row = c->pixels, .accumulate = term > 0,
                                                 .epilogue = term == terms - 1 ? &e : NULL});
    for (int64_t m = 0; m < c->out_channels && !ht_conv_is_final(c); m++)
        ht_conv_finish(c, m, m * c->pixels + p0, p1 - p0);
}

void ht_conv_wide_term(const ht_conv *c, int64_t term, float *sums)
{
    multiply_term(c, term, 0, c->pixels, (ht_tile){.c = sums, .c_row = c->pixels});
}

void ht_conv_wide_add(const ht_conv *c, float *const *sums, int64_t terms, int64_t m0, int64_t m1)
{
    const vf low = vf_set1(c->low), high = vf_set1(c->high);
    for (int64_t m = m0; m < m1; m++) {
        const int64_t row = m * c->pixels;
        const vf bias = vf_set1(c->bias ? c->bias[m] : 0.0f);
        for (int64_t p = 0; p < c->pixels; p += VF_LANES) {
            const int64_t left = ht_min64(VF_LANES, c->pixels - p), at = row + p;
            vf sum = vf_load_n(sums[0] + at, left);
            for (int64_t term = 1; term < terms; term++)
                sum += vf_load_n(sums[term] + at, left);
            if (c->bias)
                sum += bias;
            if (c->addend)
                sum += vf_load_n(c->addend + at, left);
            vf_store_n(c->y + at, left, vf_min(high, vf_max(low, sum)));
        }
    }
    if (!ht_conv_is_final(c))
        ht_conv_finish_channels(c, m0, m1);
}
