/* Convolution with a 3x3 kernel by Winograd's minimal filtering: A. Lavin and S. Gray, "Fast Algorithms for
 * Convolutional Neural Networks", 2015.
 *
 * The output is cut into tiles of m x m pixels, m = 2 or 4. Let n = m + 2. A tile is A^T [U * (B^T d B)] A, where d are
 * the n x n inputs that it reads, and U = G g G^T is computed once from the weights g (pack_winograd). The product in
 * brackets is elementwise. So for each of the n * n positions it is one matrix product over all channels and tiles:
 *   1. Transform the inputs of a block of tiles: V[position][panel of tiles][input channel][tile].
 *   2. For GROUP output channels at a time, compute P[position] = U[position] * V[position]. Each weight is read from
 *      memory once per block, so blocks are large. V is read once per group, and P stays in the L2 cache.
 *   3. Transform P into rows of pixels, which the epilogue stores.
 * Vectors run along the tiles of a block, which may be in several rows, or along pixels of a row, which are then split
 * by column modulo m. For m = 4 the interpolation points are 0, +-sqrt(1/2), +-sqrt(2) and infinity, which keep the
 * rounding errors within about twice those of the plain sum. For m = 2 they are smaller.
 * Cost: per tile and pair of channels n * n multiply-adds instead of 9 * m * m (2.25 and 4 times fewer), plus about 16
 * * n operations per tile and channel for the transforms. Sums do not depend on how tiles and channels are split.
 *
 * The transforms mix all inputs of a tile. A non-finite input would reach outputs whose windows do not contain it, and
 * a large input would spread its rounding error to them. Such outputs are recomputed as plain sums (`plain_sums`) from
 * the original weights:
 *   - all outputs of a filter with a weight that is not finite or beyond HT_WINOGRAD_EXTREME;
 *   - all outputs of a tile with an input, in any channel, that is not finite or beyond OVERFLOWS;
 *   - all outputs of a tile with an input beyond HT_WINOGRAD_EXTREME, if one of its windows contains only inputs of at
 *     most 1 / OUTSHONE of that magnitude.
 * So inputs outside an output's window change it by at most the rounding error of inputs of HT_WINOGRAD_EXTREME, or of
 * OUTSHONE times the largest input of the window.
 * A block is searched for such tiles only if the squares of four of the n * n transformed inputs have a large sum.
 * Together these four depend on all inputs. Their sum is always large if an input is not finite. It is large if an
 * input is extreme, unless several extreme inputs cancel.
 */
#include "conv.h"
#include "layouts.h"
#include "questions.h"

#define GROUP 64           /* output channels whose products are computed together, each position in turn */
#define FEW (HT_TILE_PANELS * HT_PANEL) /* the same, if the tiles of a block fill a single vector or less */
#define BLOCK 256          /* input channels of a product, at most: a panel of weights takes 16 kB of the L1 cache */
#define MARGIN 16          /* floats between the matrices of two positions: they start in different cache sets */
#define TOGETHER HT_CONV_WINOGRAD_TOGETHER /* input channels whose rows are split before the first of them is loaded again */
#define MAX_N 6            /* rows and columns of a transformed tile: m + 2 for m = 4 */
#define OVERFLOWS 0x1p64f  /* sums of transformed inputs of up to this magnitude, times weights that are not extreme, are finite */
#define OUTSHONE 1024.0f   /* ratio of inputs from which a tile is recomputed: 2^10 of float32's 2^24 */
#define TOGETHER_PLAIN 8   /* outputs that plain_sums computes for each load of the weights */

_Static_assert(GROUP + TOGETHER <= HT_WINOGRAD_CHANNELS && FEW <= GROUP, "ht_scratch_winograd counts on it");

static int64_t positions(int64_t m) { return (m + 2) * (m + 2); }

/* The memory of a thread, and the geometry of all blocks. */
typedef struct {
    int64_t m, across, tiles;
    int64_t blocks, columns; /* columns: tiles of each block but the last */
    int64_t v_step, v_panel; /* V: from one position to the next, from one panel of tiles to the next */
    int64_t p_step, p_row;   /* P: from one position to the next, from one output channel to the next */
    int64_t phase;           /* floats per phase of the split rows */
    float *v, *p, *split, *zeros, *rows;
} work;

static int64_t block_tiles(const work *w, int64_t block)
{
    return block + 1 < w->blocks ? w->columns : w->tiles - block * w->columns;
}

static int64_t prepare(const ht_conv *c, int64_t m, work *w)
{
    const int64_t n = m + 2;
    w->m = m;
    w->across = ht_ceil_div(c->out[2], m);
    w->tiles = w->across * ht_ceil_div(c->out[1], m);
    w->columns = ht_winograd_columns(c->in_channels, m);
    w->blocks = ht_winograd_blocks(w->tiles, w->columns);
    w->p_row = ht_ceil_div(block_tiles(w, w->blocks - 1), HT_PANEL) * HT_PANEL;
    if (w->blocks > 1)
        w->p_row = ht_max64(w->p_row, w->columns);
    w->v_panel = c->in_channels * HT_PANEL;
    w->v_step = c->in_channels * w->p_row + MARGIN;
    w->p_step = GROUP * w->p_row + MARGIN;
    w->phase = w->p_row + HT_PANEL;
    w->v = c->scratch;
    w->p = w->v + n * n * w->v_step;
    w->split = w->p + n * n * w->p_step;
    w->rows = w->split + TOGETHER * n * n * w->phase + HT_PANEL;
    w->zeros = w->rows + m * m * (w->p_row + 16);
    const int64_t bytes = (w->zeros - w->v + HT_WINOGRAD_WIDTH) * (int64_t)sizeof(float);
    HT_ASSERT(bytes <= ht_scratch_winograd(c->in_channels, m));
    return bytes;
}

static int64_t panels_of(const ht_conv *c) { return ht_ceil_div(c->out_channels, HT_PANEL); }

int ht_conv_winograd_fits(const ht_conv *c, int64_t m, int64_t scratch_bytes)
{
    if ((m != 2 && m != 4) || c->dilation[1] != 1 || c->dilation[2] != 1 ||
        !ht_winograd_supports(c->in_channels, c->in, c->out, c->kernel, c->stride, c->pad, c->dilation))
        return 0;
    work w;
    return prepare(c, m, &w) <= scratch_bytes;
}

int64_t ht_conv_winograd_blocks(const ht_conv *c, int64_t m)
{
    work w;
    prepare(c, m, &w);
    return w.blocks;
}

static const float ROOT2 = 1.41421356f, ROOT_HALF = 0.70710678f;

/* d := B^T d */
HT_INLINE void transform_in(vf d[MAX_N], const int m)
{
    if (m == 2) {
        const vf d1 = d[1];
        d[0] -= d[2];
        d[1] = d1 + d[2];
        d[2] -= d1;
        d[3] = d1 - d[3];
        return;
    }
    const vf two = vf_set1(2.0f), half = vf_set1(0.5f), both = vf_set1(2.5f);
    const vf even_a = vf_fnma(two, d[2], d[4]), odd_a = vf_fnma(two, d[1], d[3]);
    const vf even_b = vf_fnma(half, d[2], d[4]), odd_b = vf_fnma(half, d[1], d[3]);
    d[0] = vf_fnma(both, d[2], d[0] + d[4]);
    d[5] = vf_fnma(both, d[3], d[1] + d[5]);
    d[1] = vf_fma(vf_set1(ROOT_HALF), odd_a, even_a);
    d[2] = vf_fnma(vf_set1(ROOT_HALF), odd_a, even_a);
    d[3] = vf_fma(vf_set1(ROOT2), odd_b, even_b);
    d[4] = vf_fnma(vf_set1(ROOT2), odd_b, even_b);
}

/* p := A^T p; the first m are the result */
HT_INLINE void transform_out(vf p[MAX_N], const int m)
{
    if (m == 2) {
        const vf sum = p[1] + p[2], difference = p[1] - p[2];
        p[0] += sum;
        p[1] = difference - p[3];
        return;
    }
    const vf sum_a = p[1] + p[2], odd_a = p[1] - p[2], sum_b = p[3] + p[4], odd_b = p[3] - p[4];
    p[0] += sum_a + sum_b;
    p[1] = vf_fma(vf_set1(ROOT_HALF), odd_a, vf_set1(ROOT2) * odd_b);
    p[2] = vf_fma(vf_set1(0.5f), sum_a, vf_set1(2.0f) * sum_b);
    p[3] = vf_fma(vf_set1(0.5f * ROOT_HALF), odd_a, vf_fma(vf_set1(2.0f * ROOT2), odd_b, p[5]));
}

/* A row of tiles: `count` tiles from column x0 in tile row y. */
typedef struct {
    int64_t y, x0, count, first; /* first: index of the first tile within the block */
} segment;

/* d := columns [at, at + VF_LANES) of the n input rows, with zeros outside [0, size). */
HT_INLINE void load_rows(const float *const rows[MAX_N], int64_t size, int64_t at, vf d[MAX_N], const int m)
{
    if (HT_LIKELY(at >= 0 && at + VF_LANES <= size)) {
#pragma GCC unroll 6
        for (int r = 0; r < m + 2; r++)
            d[r] = vf_load(rows[r] + at);
        return;
    }
    const int64_t low = ht_min64(VF_LANES, ht_max64(0, -at)), high = ht_max64(low, ht_min64(VF_LANES, size - at));
#pragma GCC unroll 6
    for (int r = 0; r < m + 2; r++)
        d[r] = vf_load_or(rows[r] + at, low, high, vf_set1(0.0f));
}

/* Stores x from one tile before `phase` on. The number of that tile is kept, because the tile may be the last of the
 * previous segment. */
HT_INLINE void store_before(float *phase, vf x)
{
    const float kept = phase[-1];
    vf_store(phase - 1, x);
    phase[-1] = kept;
}

/* Columns [at, at + m * VF_LANES) of the n input rows, transformed along y and split by column modulo m. The last two of
 * a tile's n columns are the first two of the next. dst: of the first tile; begins: it is the first of its segment. */
HT_INLINE void split_rows(const work *w, const float *const rows[MAX_N], int64_t size, int64_t at, int begins, float *dst,
                          const int m)
{
    vf t[MAX_N][4];
#pragma GCC unroll 4
    for (int k = 0; k < m; k++) {
        vf d[MAX_N];
        load_rows(rows, size, at + k * VF_LANES, d, m);
        transform_in(d, m);
#pragma GCC unroll 6
        for (int r = 0; r < m + 2; r++)
            t[r][k] = d[r];
    }
    const int64_t phase = w->phase;
#pragma GCC unroll 6
    for (int r = 0; r < m + 2; r++) {
        float *phases = dst + r * (m + 2) * phase;
        vf first, second;
        if (m == 2) {
            first = vf_even(t[r][0], t[r][1]);
            second = vf_odd(t[r][0], t[r][1]);
        } else {
            const vf even0 = vf_even(t[r][0], t[r][1]), even1 = vf_even(t[r][2], t[r][3]);
            const vf odd0 = vf_odd(t[r][0], t[r][1]), odd1 = vf_odd(t[r][2], t[r][3]);
            first = vf_even(even0, even1);
            second = vf_even(odd0, odd1);
            vf_store(phases + 2 * phase, vf_odd(even0, even1));
            vf_store(phases + 3 * phase, vf_odd(odd0, odd1));
        }
        vf_store(phases, first);
        vf_store(phases + phase, second);
        if (begins) {
            store_before(phases + m * phase, first);
            store_before(phases + (m + 1) * phase, second);
        } else {
            vf_store(phases + m * phase - 1, first);
            vf_store(phases + (m + 1) * phase - 1, second);
        }
    }
}

/* The two columns that the last tile reads beyond its own, if they begin a new vector. dst: of the tile after it. */
HT_INLINE void split_last(const work *w, const float *const rows[MAX_N], int64_t size, int64_t at, float *dst, const int m)
{
    vf d[MAX_N];
    float columns[VF_LANES];
    load_rows(rows, size, at, d, m);
    transform_in(d, m);
    for (int r = 0; r < m + 2; r++) {
        vf_store(columns, d[r]);
        dst[(r * (m + 2) + m) * w->phase - 1] = columns[0];
        dst[(r * (m + 2) + m + 1) * w->phase - 1] = columns[1];
    }
}

/* Splits a channel's rows of the tiles of a segment. Vectors may reach beyond the segment: the next overwrites that. */
HT_INLINE void split_channel(const ht_conv *c, const work *w, const segment *s, int64_t channel, float *dst, const int m)
{
    const float *rows[MAX_N], *plane = c->x + channel * c->in_plane;
    const int64_t size = c->in[2], begin = s->x0 * m - c->pad[2], top = s->y * m - c->pad[1];
    for (int r = 0; r < m + 2; r++) {
        const int64_t iy = top + r;
        rows[r] = iy >= 0 && iy < c->in[1] ? plane + iy * size : w->zeros;
    }
    for (int64_t i = 0; i < s->count; i += VF_LANES)
        split_rows(w, rows, size, begin + i * m, i == 0, dst + s->first + i, m);
    if (s->count % VF_LANES == 0)
        split_last(w, rows, size, begin + s->count * m, dst + s->first + s->count, m);
}

/* Transforms one channel of all tiles to v, in whole panels. Returns the sum of the squares of the four corners of V. Each
 * input enters one corner, so a non-finite input makes the sum infinite or NaN. */
HT_INLINE vf transform_channel(const work *w, int64_t tiles, const float *src, float *v, const int m)
{
    vf squares = vf_set1(0.0f);
    for (int64_t i = 0; i < tiles; i += VF_LANES) {
        float *dst = v + i / HT_PANEL * w->v_panel + i % HT_PANEL;
#pragma GCC unroll 6
        for (int r = 0; r < m + 2; r++) {
            const float *phases = src + r * (m + 2) * w->phase + i;
            vf d[MAX_N];
#pragma GCC unroll 6
            for (int q = 0; q < m + 2; q++)
                d[q] = vf_load(phases + q * w->phase);
            transform_in(d, m);
            if (r == 0 || r == m + 1)
                squares = vf_fma(d[0], d[0], vf_fma(d[m + 1], d[m + 1], squares));
#pragma GCC unroll 6
            for (int q = 0; q < m + 2; q++)
                vf_store(dst + (r * (m + 2) + q) * w->v_step, d[q]);
        }
    }
    return squares;
}

/* Transforms input channels [c0, c1); c0 is a multiple of TOGETHER. Returns 0 if the corners indicate that an input may
 * be extreme or not finite. */
HT_INLINE int transform_inputs(const ht_conv *c, const work *w, const segment *segments, int64_t count, int64_t c0,
                               int64_t c1, const int m)
{
    const vf limit = vf_set1(HT_WINOGRAD_EXTREME * HT_WINOGRAD_EXTREME / 4);
    const int64_t n = m + 2, tiles = segments[count - 1].first + segments[count - 1].count;
    const int64_t padded = ht_ceil_div(tiles, HT_PANEL) * HT_PANEL, split = n * n * w->phase;
    int ordinary = 1;
    for (int64_t channel = c0; channel < c1; channel += TOGETHER) {
        const int64_t end = ht_min64(channel + TOGETHER, c1);
        for (int64_t i = channel; i < end; i++) {
            float *of_channel = w->split + (i - channel) * split + HT_PANEL;
            for (const segment *s = segments; s < segments + count; s++)
                split_channel(c, w, s, i, of_channel, m);
            /* The product reads whole panels. Leftovers would count for nothing, but a multiply-add of a denormal number
             * takes a hundred times as long. */
            for (int64_t j = 0; j < n * n && tiles < padded; j++)
                for (int64_t at = tiles; at < padded; at += VF_LANES)
                    vf_store(of_channel + j * w->phase + at, vf_set1(0.0f));
        }
        vf squares = vf_set1(0.0f);
        for (int64_t i = channel; i < end; i++)
            squares += transform_channel(w, padded, w->split + (i - channel) * split + HT_PANEL, w->v + i * HT_PANEL, m);
        ordinary &= !vm_any(vm_or(vf_isnan(squares), vf_lt(limit, squares)));
    }
    return ordinary;
}

/* Converts the tiles of one output channel to m rows of m * columns pixels. */
HT_INLINE void transform_products(const work *w, const float *p, int64_t tiles, const int m)
{
    const int64_t row = m * (w->p_row + 16);
    for (int64_t i = 0; i < tiles; i += VF_LANES) {
        vf t[4][MAX_N];
#pragma GCC unroll 6
        for (int q = 0; q < m + 2; q++) {
            vf d[MAX_N];
#pragma GCC unroll 6
            for (int r = 0; r < m + 2; r++)
                d[r] = vf_load(p + (r * (m + 2) + q) * w->p_step + i);
            transform_out(d, m);
#pragma GCC unroll 4
            for (int r = 0; r < m; r++)
                t[r][q] = d[r];
        }
#pragma GCC unroll 4
        for (int r = 0; r < m; r++) {
            float *dst = w->rows + r * row + i * m;
            vf *d = t[r];
            transform_out(d, m);
            if (m == 2) {
                vf_store(dst, vf_zip_low(d[0], d[1]));
                vf_store(dst + VF_LANES, vf_zip_high(d[0], d[1]));
            } else {
                const vf even0 = vf_zip_low(d[0], d[2]), even1 = vf_zip_high(d[0], d[2]);
                const vf odd0 = vf_zip_low(d[1], d[3]), odd1 = vf_zip_high(d[1], d[3]);
                vf_store(dst, vf_zip_low(even0, odd0));
                vf_store(dst + VF_LANES, vf_zip_high(even0, odd0));
                vf_store(dst + 2 * VF_LANES, vf_zip_low(even1, odd1));
                vf_store(dst + 3 * VF_LANES, vf_zip_high(even1, odd1));
            }
        }
    }
}

static void store_rows(const ht_conv *c, const work *w, const segment *segments, int64_t count, int64_t channel)
{
    const vf low = vf_set1(c->low), high = vf_set1(c->high), bias = vf_set1(c->bias ? c->bias[channel] : 0.0f);
    const int64_t row = w->m * (w->p_row + 16);
    for (const segment *s = segments; s < segments + count; s++) {
        const int64_t x = s->x0 * w->m, pixels = ht_min64(s->count * w->m, c->out[2] - x);
        for (int64_t r = 0; r < ht_min64(w->m, c->out[1] - s->y * w->m); r++) {
            const float *src = w->rows + r * row + s->first * w->m;
            const int64_t at = channel * c->pixels + (s->y * w->m + r) * c->out[2] + x;
            float *y = c->y + at;
            const float *addend = c->addend ? c->addend + at : NULL;
            int64_t i = 0;
            for (; i + VF_LANES <= pixels; i += VF_LANES) {
                vf sum = vf_load(src + i) + bias;
                if (addend)
                    sum += vf_load(addend + i);
                vf_store(y + i, vf_min(high, vf_max(low, sum)));
            }
            if (i < pixels) {
                vf sum = vf_load(src + i) + bias;
                if (addend)
                    sum += vf_load_n(addend + i, pixels - i);
                vf_store_n(y + i, pixels - i, vf_min(high, vf_max(low, sum)));
            }
            if (!ht_conv_is_final(c))
                ht_conv_finish(c, channel, at, pixels);
        }
    }
}

/* Computes P[position] for a group of output channels. The weights are read once per block of tiles. */
static void multiply(const ht_conv *c, const work *w, int64_t channel, int64_t channels, int64_t tiles)
{
    const int64_t count = positions(w->m), panel = count * c->in_channels * HT_PANEL;
    const int64_t blocks = ht_ceil_div(c->in_channels, BLOCK), step = ht_ceil_div(c->in_channels, blocks);
    const float *weights = c->w + channel * count * c->in_channels;
    for (int64_t position = 0; position < count; position++)
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t k = ht_min64(step, c->in_channels - block * step);
            const ht_tile t = {.a = weights, .a_row = 1, .a_k = HT_PANEL,
                               .b = w->v + position * w->v_step + block * step * HT_PANEL, .b_k = HT_PANEL,
                               .b_panel = w->v_panel, .c = w->p + position * w->p_step, .c_row = w->p_row, .k = k,
                               .accumulate = block > 0, .next = weights + k * HT_PANEL};
            ht_gemm_block(&t, panel, channels, tiles);
            weights += k * HT_PANEL;
        }
}

/* The same for at most HT_PANEL tiles and FEW channels. Here the vectors run along channels, because so few tiles would
 * leave most of a product's columns empty. The sums are the same. */
static void multiply_few(const ht_conv *c, const work *w, int64_t channel, int64_t channels, int64_t tiles)
{
    enum { LEAST_ROWS = 4 }; /* with three panels they hide the latency of multiply-adds */
    float sums[HT_PANEL][FEW] __attribute__((aligned(64))); /* [tile][channel] */
    const int64_t count = positions(w->m), panels = ht_ceil_div(channels, HT_PANEL);
    /* Each of the first tiles of rows prefetches one panel of the next weights, so there are as many if possible. */
    const int64_t heights = ht_max64(ht_ceil_div(tiles, HT_TILE_ROWS), ht_min64(panels, tiles / LEAST_ROWS));
    const int64_t panel = count * c->in_channels * HT_PANEL;
    const int64_t blocks = ht_ceil_div(c->in_channels, BLOCK), step = ht_ceil_div(c->in_channels, blocks);
    const float *weights = c->w + channel * count * c->in_channels;
    for (int64_t position = 0; position < count; position++) {
        for (int64_t block = 0; block < blocks; block++) {
            const int64_t k = ht_min64(step, c->in_channels - block * step);
            ht_tile t = {.a_row = 1, .a_k = HT_PANEL, .b = weights, .b_k = HT_PANEL, .b_panel = panel, .c_row = FEW,
                         .k = k, .columns = panels * HT_PANEL, .accumulate = block > 0};
            const float *v = w->v + position * w->v_step + block * step * HT_PANEL;
            int64_t row = 0;
            for (int64_t tile = 0; tile < heights; tile++) {
                const int64_t height = tiles / heights + (tile < tiles % heights);
                t.a = v + row;
                t.c = sums[row];
                t.next = weights + (tile < panels ? k * HT_PANEL + tile * panel : 0);
                t.next_step = tile < panels ? HT_PANEL : 0;
                ht_tile_fns[height - 1][panels - 1](&t);
                row += height;
            }
            weights += k * HT_PANEL;
        }
        float *p = w->p + position * w->p_step;
        for (int64_t m = 0; m < panels * HT_PANEL; m += VF_LANES)
            for (int64_t tile = 0; tile < tiles; tile += VF_LANES) {
                vf square[VF_LANES];
                for (int64_t i = 0; i < VF_LANES; i++)
                    square[i] = tile + i < tiles ? vf_load(&sums[tile + i][m]) : vf_set1(0.0f);
                vf_transpose(square);
                for (int64_t i = 0; i < VF_LANES; i++)
                    vf_store(p + (m + i) * w->p_row + tile, square[i]);
            }
    }
}

/* ---- Recomputed outputs */

/* Bits of the magnitude. As integers they order numbers by magnitude, with infinity and NaN last. */
HT_INLINE int32_t magnitude(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits & INT32_MAX;
}

/* plain[tile] := whether the outputs of the tile must be recomputed, for each tile of a segment. */
__attribute__((noinline, cold)) static void find_plain(const ht_conv *c, const segment *s, const int64_t m, uint8_t *plain)
{
    enum { WIDEST = 4 * HT_WINOGRAD_MOST + 2 };
    int32_t largest[MAX_N][WIDEST] = {{0}}; /* over all channels; zero in the padding */
    const int64_t left = s->x0 * m - c->pad[2], top = s->y * m - c->pad[1], width = s->count * m + 2;
    const int64_t low = ht_max64(0, -left), high = ht_min64(width, c->in[2] - left);
    for (int64_t channel = 0; channel < c->in_channels; channel++)
        for (int64_t r = ht_max64(0, -top); r < ht_min64(m + 2, c->in[1] - top); r++) {
            const float *row = c->x + channel * c->in_plane + (top + r) * c->in[2] + left;
            for (int64_t i = low; i < high; i++) {
                const int32_t bits = magnitude(row[i]);
                largest[r][i] = bits > largest[r][i] ? bits : largest[r][i];
            }
        }
    for (int64_t tile = 0; tile < s->count; tile++) {
        int32_t peak = 0;
        for (int64_t r = 0; r < m + 2; r++)
            for (int64_t q = 0; q < m + 2; q++)
                peak = peak < largest[r][tile * m + q] ? largest[r][tile * m + q] : peak;
        plain[s->first + tile] = 0;
        if (peak <= magnitude(HT_WINOGRAD_EXTREME))
            continue;
        float size;
        memcpy(&size, &peak, sizeof size);
        const int32_t outshone = peak > magnitude(OVERFLOWS) ? INT32_MAX : magnitude(size / OUTSHONE);
        for (int64_t output = 0; output < m * m; output++) {
            int32_t window = 0;
            if (s->y * m + output / m >= c->out[1] || (s->x0 + tile) * m + output % m >= c->out[2])
                continue;
            for (int64_t i = 0; i < 9; i++) {
                const int32_t tap = largest[output / m + i / 3][tile * m + output % m + i % 3];
                window = window < tap ? tap : window;
            }
            plain[s->first + tile] |= window <= outshone;
        }
    }
}

/* Copies the window of an output in the layout of one filter's weights: window[channel][tap], zero in the padding. */
static void gather_window(const ht_conv *c, int64_t y, int64_t x, float *window)
{
    const int64_t top = y - c->pad[1], left = x - c->pad[2];
    for (int64_t channel = 0; channel < c->in_channels; channel++)
        for (int64_t r = top; r < top + 3; r++)
            for (int64_t q = left; q < left + 3; q++) {
                const int inside = r >= 0 && r < c->in[1] && q >= 0 && q < c->in[2];
                *window++ = inside ? c->x[channel * c->in_plane + r * c->in[2] + q] : 0.0f;
            }
}

/* Computes `count` outputs, at offsets `at` in their planes, for filters [m0, m1), as plain sums over their windows. */
static void plain_sums(const ht_conv *c, const float *windows, const int64_t *at, int64_t count, int64_t m0, int64_t m1)
{
    const int64_t depth = 9 * c->in_channels;
    for (int64_t m = m0; m < m1; m++) {
        const float *filter = (const float *)c->plain + m * depth; /* may be unaligned */
        const vf factor = vf_set1(c->scale ? c->scale[m] : 1.0f);
        vf sums[TOGETHER_PLAIN];
        for (int i = 0; i < TOGETHER_PLAIN; i++)
            sums[i] = vf_set1(0.0f);
        for (int64_t k = 0; k < depth; k += VF_LANES) {
            const int64_t n = ht_min64(VF_LANES, depth - k);
            const vf weights = (n == VF_LANES ? vf_load(filter + k) : vf_load_n(filter + k, n)) * factor;
            for (int64_t i = 0; i < count; i++) {
                const float *window = windows + i * depth + k;
                sums[i] = vf_fma(weights, n == VF_LANES ? vf_load(window) : vf_load_n(window, n), sums[i]);
            }
        }
        for (int64_t i = 0; i < count; i++) {
            float *y = c->y + m * c->pixels + at[i];
            float sum = vf_hsum(sums[i]) + (c->bias ? c->bias[m] : 0.0f);
            if (c->addend)
                sum += c->addend[m * c->pixels + at[i]];
            sum = sum < c->low ? c->low : sum; /* keeps NaN */
            *y = sum > c->high ? c->high : sum;
            if (!ht_conv_is_final(c))
                ht_conv_finish(c, m, m * c->pixels + at[i], 1);
        }
    }
}

/* Recomputes the outputs of the tiles marked in `plain` (NULL: all tiles of the block), for filters [m0, m1). */
__attribute__((noinline, cold)) static void recompute(const ht_conv *c, const work *w, const segment *segments,
                                                      int64_t count, const uint8_t *plain, int64_t m0, int64_t m1)
{
    float *windows = w->v; /* reuses the memory of the transformed inputs, which is larger */
    int64_t at[TOGETHER_PLAIN], pending = 0;
    for (const segment *s = segments; s < segments + count; s++)
        for (int64_t i = 0; i < s->count * w->m * w->m; i++) {
            const int64_t tile = i / (w->m * w->m), pixel = i % (w->m * w->m);
            const int64_t y = s->y * w->m + pixel / w->m, x = (s->x0 + tile) * w->m + pixel % w->m;
            if (y >= c->out[1] || x >= c->out[2] || (plain && !plain[s->first + tile]))
                continue;
            gather_window(c, y, x, windows + pending * 9 * c->in_channels);
            at[pending++] = y * c->out[2] + x;
            if (pending == TOGETHER_PLAIN) {
                plain_sums(c, windows, at, pending, m0, m1);
                pending = 0;
            }
        }
    if (pending > 0)
        plain_sums(c, windows, at, pending, m0, m1);
}

/* ---- Blocks of tiles */

typedef struct {
    work w;
    int64_t tiles, count; /* count: of segments */
    segment segments[HT_WINOGRAD_MOST];
} tile_block;

/* v: memory for V, or NULL for this thread's own. */
static void begin_block(const ht_conv *c, int64_t m, int64_t block, float *v, tile_block *b)
{
    prepare(c, m, &b->w);
    if (v)
        b->w.v = v;
    const int64_t first = block * b->w.columns;
    b->tiles = block_tiles(&b->w, block);
    b->count = 0;
    for (int64_t done = 0; done < b->tiles; b->count++) {
        const int64_t y = (first + done) / b->w.across, x = (first + done) % b->w.across;
        b->segments[b->count] = (segment){y, x, ht_min64(b->w.across - x, b->tiles - done), done};
        done += b->segments[b->count].count;
    }
}

HT_INLINE int transform_block(const ht_conv *c, const tile_block *b, int64_t c0, int64_t c1, const int m)
{
    for (int64_t i = 0; i < c->in[2]; i += VF_LANES)
        vf_store_n(b->w.zeros + i, ht_min64(VF_LANES, c->in[2] - i), vf_set1(0.0f));
    return transform_inputs(c, &b->w, b->segments, b->count, c0, c1, m);
}

/* Only where a tile of the product is several panels wide (AVX-512): it then computes as many more columns with hardly
 * more loads. */
static int has_few(int64_t tiles) { return HT_TILE_PANELS > 1 && tiles <= HT_PANEL; }

HT_INLINE void multiply_block(const ht_conv *c, const tile_block *b, int64_t m0, int64_t m1, const int m)
{
    const int few = has_few(b->tiles);
    const int64_t together = few ? FEW : GROUP;
    for (int64_t channel = m0; channel < m1; channel += together) {
        const int64_t channels = ht_min64(together, m1 - channel);
        (few ? multiply_few : multiply)(c, &b->w, channel, channels, b->tiles);
        for (int64_t i = 0; i < channels; i++) {
            transform_products(&b->w, b->w.p + i * b->w.p_row, b->tiles, m);
            store_rows(c, &b->w, b->segments, b->count, channel + i);
        }
    }
}

/* Whether each filter has extreme weights: 1 or 0. */
static const float *extreme_filters(const ht_conv *c, int64_t m)
{
    return c->w + ht_winograd_floats(c->in_channels, c->out_channels, m) - panels_of(c) * HT_PANEL;
}

static void repair_block(const ht_conv *c, const tile_block *b, int64_t m0, int64_t m1, int ordinary)
{
    if (HT_UNLIKELY(!ordinary)) {
        uint8_t plain[HT_WINOGRAD_MOST];
        for (const segment *s = b->segments; s < b->segments + b->count; s++)
            find_plain(c, s, b->w.m, plain);
        recompute(c, &b->w, b->segments, b->count, plain, m0, m1);
    }
    const float *extreme = extreme_filters(c, b->w.m);
    for (int64_t channel = m0; channel < m1; channel++)
        if (HT_UNLIKELY(extreme[channel] != 0))
            recompute(c, &b->w, b->segments, b->count, NULL, channel, channel + 1);
}

int ht_conv_winograd_transform(const ht_conv *c, int64_t m, int64_t block, int64_t c0, int64_t c1, float *v)
{
    tile_block b;
    begin_block(c, m, block, v, &b);
    return m == 2 ? transform_block(c, &b, c0, c1, 2) : transform_block(c, &b, c0, c1, 4);
}

void ht_conv_winograd_multiply(const ht_conv *c, int64_t m, int64_t block, int64_t m0, int64_t m1, float *v)
{
    tile_block b;
    begin_block(c, m, block, v, &b);
    if (m == 2)
        multiply_block(c, &b, m0, m1, 2);
    else
        multiply_block(c, &b, m0, m1, 4);
}

void ht_conv_winograd_repair(const ht_conv *c, int64_t m, int64_t block, int64_t m0, int64_t m1, int ordinary)
{
    tile_block b;
    begin_block(c, m, block, NULL, &b);
    repair_block(c, &b, m0, m1, ordinary);
}

int ht_conv_winograd_has_extreme(const ht_conv *c, int64_t m)
{
    const float *extreme = extreme_filters(c, m);
    float sum = 0;
    for (int64_t channel = 0; channel < c->out_channels; channel++)
        sum += extreme[channel];
    return sum != 0;
}

int64_t ht_conv_winograd_width(const ht_conv *c, int64_t m, int64_t block)
{
    work w;
    prepare(c, m, &w);
    return has_few(block_tiles(&w, block)) ? FEW : GROUP;
}

void ht_conv_winograd(const ht_conv *c, int64_t m, int64_t block)
{
    const int ordinary = ht_conv_winograd_transform(c, m, block, 0, c->in_channels, NULL);
    ht_conv_winograd_multiply(c, m, block, 0, c->out_channels, NULL);
    ht_conv_winograd_repair(c, m, block, 0, c->out_channels, ordinary);
}

/* G of m = 2 and m = 4: n x 3. */
static const double G2[4][3] = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
#define R 0.70710678118654752440
static const double G4[6][3] = {{1, 0, 0},
                                {-2. / 3, -2. / 3 * R, -1. / 3},
                                {-2. / 3, 2. / 3 * R, -1. / 3},
                                {1. / 6, 1. / 3 * R, 1. / 3},
                                {1. / 6, -1. / 3 * R, 1. / 3},
                                {0, 0, 1}};

/* All taps of VF_LANES channels of a panel's filters: taps[channel][t][lane], zero for absent channels and filters. w:
 * first channel of the first filter; `channels` of them exist. `count` filters exist, `step` apart. */
static void gather_taps(const float *w, int64_t step, int64_t channels, int64_t count, float taps[VF_LANES * 9][HT_PANEL])
{
    const int64_t numbers = channels * 9;
    for (int64_t from = 0; from < VF_LANES * 9; from += VF_LANES) {
        const int64_t left = ht_max64(0, ht_min64(VF_LANES, numbers - from));
        for (int64_t lane = 0; lane < HT_PANEL; lane += VF_LANES) {
            const float *filter = w + lane * step + from;
            vf block[VF_LANES];
            if (HT_LIKELY(left == VF_LANES && lane + VF_LANES <= count))
#pragma GCC unroll 16
                for (int r = 0; r < VF_LANES; r++)
                    block[r] = vf_load(filter + r * step);
            else
#pragma GCC unroll 16
                for (int r = 0; r < VF_LANES; r++)
                    block[r] = lane + r < count && left > 0 ? vf_load_n(filter + r * step, left) : vf_set1(0.0f);
            vf_transpose(block);
#pragma GCC unroll 16
            for (int r = 0; r < VF_LANES; r++)
                vf_store(&taps[from + r][lane], block[r]);
        }
    }
}

/* y[0 .. n - 1] = G x, 16 lanes each. Rows 1 and 2, and rows 3 and 4, differ only in the sign of the middle column. */
HT_INLINE void transform_taps(double x[3][HT_PANEL], double y[MAX_N][HT_PANEL], const double g[][3], const int n)
{
    for (int lane = 0; lane < HT_PANEL; lane++) {
        y[0][lane] = x[0][lane];
        for (int r = 1; r + 1 < n; r += 2) {
            const double even = g[r][0] * x[0][lane] + g[r][2] * x[2][lane], odd = g[r][1] * x[1][lane];
            y[r][lane] = even + odd;
            y[r + 1][lane] = even - odd;
        }
        y[n - 1][lane] = x[2][lane];
    }
}

/* G g G^T of one channel, computed in float64, to dst[n * n][channels][16]. */
HT_INLINE void transform_filters(float taps[9][HT_PANEL], float *dst, int64_t step, const double g[][3], const int n)
{
    double rows[MAX_N][3][HT_PANEL], x[3][HT_PANEL], y[MAX_N][HT_PANEL];
    for (int column = 0; column < 3; column++) {
        for (int r = 0; r < 3; r++)
            for (int lane = 0; lane < HT_PANEL; lane++)
                x[r][lane] = taps[3 * r + column][lane];
        transform_taps(x, y, g, n);
        for (int r = 0; r < n; r++)
            for (int lane = 0; lane < HT_PANEL; lane++)
                rows[r][column][lane] = y[r][lane];
    }
    for (int r = 0; r < n; r++) {
        transform_taps(rows[r], y, g, n);
        for (int q = 0; q < n; q++)
            for (int lane = 0; lane < HT_PANEL; lane++)
                dst[(r * n + q) * step + lane] = (float)y[q][lane];
    }
}

/* extreme[lane] := 1 where a tap is not finite or extreme. */
static void find_extreme(float taps[][HT_PANEL], int64_t count, float extreme[HT_PANEL])
{
    const vf limit = vf_set1(HT_WINOGRAD_EXTREME), one = vf_set1(1.0f);
    for (int64_t i = 0; i < count; i++)
        for (int lane = 0; lane < HT_PANEL; lane += VF_LANES) {
            const vm fits = vf_le(vf_abs(vf_load(&taps[i][lane])), limit);
            vf_store(extreme + lane, vf_select(fits, vf_load(extreme + lane), one));
        }
}

/* pack_winograd: in w[group * M][C][3][3], at any address; out packed[group]: [ceil(M / 16)][n * n][C][16], then
 * [ceil(M / 16)][16]: 1 for a filter with extreme weights, else 0; all float32. ints: group, C, M, m. */
int HT_KERNEL(pack_winograd)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 1 || call->num_ints != 4)
        return HT_ERR_OPERAND;
    const ht_tensor *w = call->in[0], *packed = call->out[0];
    const int64_t group = call->ints[0], channels = call->ints[1], maps = call->ints[2], m = call->ints[3];
    if (w->dtype != HT_FLOAT32 || packed->dtype != HT_FLOAT32)
        return HT_ERR_DTYPE;
    if (group < 1 || channels < 1 || maps < 1 || (m != 2 && m != 4) || w->size != group * maps * channels * 9)
        return HT_ERR_OPERAND;
    const int64_t panels = ht_ceil_div(maps, HT_PANEL), n = m + 2, step = channels * HT_PANEL;
    const int64_t packed_group = ht_winograd_floats(channels, maps, m);
    if (packed->size != group * packed_group)
        return HT_ERR_OPERAND;
    float taps[VF_LANES * 9][HT_PANEL] __attribute__((aligned(64)));
    for (int64_t i = 0; i < group * panels; i++) {
        const int64_t first = i % panels * HT_PANEL, count = ht_min64(HT_PANEL, maps - first);
        const float *src = (const float *)w->data + (i / panels * maps + first) * channels * 9;
        float *of_group = (float *)packed->data + i / panels * packed_group, *dst = of_group + i % panels * n * n * step;
        float *extreme = of_group + panels * n * n * step + i % panels * HT_PANEL;
        for (int lane = 0; lane < HT_PANEL; lane++)
            extreme[lane] = 0.0f;
        for (int64_t c = 0; c < channels; c += VF_LANES) {
            const int64_t together = ht_min64(VF_LANES, channels - c);
            gather_taps(src + c * 9, channels * 9, together, count, taps);
            find_extreme(taps, together * 9, extreme);
            for (int64_t j = 0; j < together; j++, dst += HT_PANEL) {
                if (m == 2)
                    transform_filters(taps + j * 9, dst, step, G2, 4);
                else
                    transform_filters(taps + j * 9, dst, step, G4, 6);
            }
        }
    }
    return HT_OK;
}
