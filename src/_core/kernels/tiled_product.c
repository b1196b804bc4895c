/* Products of float32 as sums of products of bfloat16, which AMX multiplies sixteen times as fast.
 *
 * A number x is split into x = h + m + l, three of bfloat16: h is x rounded to 8 bits, m the rest rounded to 8 bits, and
 * l what then remains, at most 8 bits of the 24. So
 *     a b = h h' + (h m' + m h') + (h l' + m m' + l h') + (m l' + l m' + l l'),
 * and the last bracket is at most 2^-24 |a b|, half a unit in the last place of the product. The other six products are exact
 * in float32. A product of tiles adds up 16 of them in float32 for even and for odd k, then adds both to C: fewer additions to
 * large sums than in a plain loop. So errors are at most those of a sum of float32 products in order; measured, a third.
 * H. Henry, P. Tang and A. Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
 * Computations", ARITH 2019.
 *
 * AMX takes numbers below 2^-126 for zero and has no use for infinities, whose m would be NaN. So a group of 32 rows of A, or
 * columns of B, is split only if its largest magnitude lies between LEAST and MOST, or is zero: then sums are finite, what is lost of
 * parts below 2^-126 is at most 2^-104 for each product, and that is less than 2^-23 of the product of both largest
 * magnitudes. Other groups are multiplied as float32: those of B here, those of A by the caller. Whether a group is split
 * depends on the block of k and the group alone, so results do not depend on how rows and columns are divided, if at
 * multiples of HT_TILED_GROUP.
 *
 * Converted, a group is a row of steps of 32 k, each [part h, m, l][half: 16 rows or columns][1 kB tile].
 * Cost: six products of tiles for each 32 x 32 x 32, which is 2.4 times as fast as float32 vectors; converting an element takes as long as 20 of
 * the products.
 */
#include "tiled_product.h"

#define GROUP HT_TILED_GROUP
#define STEP HT_SPLIT_STEP
#define HALF HT_TILE_BYTES
#define PART (2 * HT_TILE_BYTES)
#define STEP_BYTES (3 * PART)

#define LEAST 0x1p-40f
#define MOST 0x1p20f

typedef struct {
    vi h, m, l; /* each 16 pairs: of x0 in the low halves, of x1 in the high ones */
} parts;

/* Rounds to bfloat16, halves away from zero; the low 16 bits become zero. Not for infinities and NaN. */
HT_INLINE vi rounded(vf x) { return vi_and(vi_add(vf_bits(x), vi_set1(0x8000)), vi_set1((int32_t)0xffff0000)); }

HT_INLINE vi paired(vi low, vi high) { return vi_or(_mm512_srli_epi32(low, 16), high); }

HT_INLINE parts split(vf x0, vf x1, vi *largest)
{
    /* Without their signs, as integers, numbers are ordered by magnitude, with infinity and NaN last. */
    *largest = _mm512_max_epu32(*largest, _mm512_max_epu32(vi_shl(vf_bits(x0), 1), vi_shl(vf_bits(x1), 1)));
    parts p;
    vi low = rounded(x0), high = rounded(x1);
    p.h = paired(low, high);
    x0 -= vi_as_float(low);
    x1 -= vi_as_float(high);
    low = rounded(x0);
    high = rounded(x1);
    p.m = paired(low, high);
    x0 -= vi_as_float(low);
    x1 -= vi_as_float(high);
    p.l = _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32(vf_bits(x0), 16), vf_bits(x1));
    return p;
}

HT_INLINE void store_parts(uint8_t *to, parts p)
{
    _mm512_store_si512(to, p.h);
    _mm512_store_si512(to + PART, p.m);
    _mm512_store_si512(to + 2 * PART, p.l);
}

static int in_range(vi largest)
{
    const uint32_t most = _mm512_reduce_max_epu32(largest);
    const vi limits = vi_shl(vf_bits(_mm512_setr_ps(LEAST, MOST, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)), 1);
    uint32_t limit[16];
    _mm512_storeu_si512(limit, limits);
    return most == 0 || (most >= limit[0] && most <= limit[1]);
}

/* Up to 16 vectors of memory, `row` apart: `rows` of `columns` elements exist, the others are zero. */
HT_INLINE void load_square(const float *from, int64_t row, int64_t rows, int64_t columns, vf square[VF_LANES])
{
    if (HT_LIKELY(rows >= VF_LANES && columns >= VF_LANES)) {
#pragma GCC unroll 16
        for (int r = 0; r < VF_LANES; r++)
            square[r] = vf_load(from + r * row);
        return;
    }
#pragma GCC unroll 16
    for (int r = 0; r < VF_LANES; r++)
        square[r] = r < rows && columns > 0 ? vf_load_n(from + r * row, ht_min64(VF_LANES, columns)) : vf_set1(0.0f);
}

/* Row r of a tile of A: 32 adjacent k of a lane. */
HT_INLINE void store_lane(uint8_t *to, int r, vf first, vf second, vi *largest)
{
    store_parts(to + r * 64, split(vf_even(first, second), vf_odd(first, second), largest));
}

/* The lanes of a tile of A whose k are adjacent in memory. */
static __attribute__((noinline)) void convert_rows(const ht_lanes *x, int64_t lanes, int64_t k, uint8_t *to, vi *most)
{
    vi largest = *most;
    for (int64_t k0 = 0; k0 < k; k0 += STEP, to += STEP_BYTES) {
        const float *from = x->data + k0;
        const int64_t left = ht_min64(STEP, k - k0), second = ht_max64(0, left - VF_LANES);
        if (HT_LIKELY(left == STEP))
            for (int r = 0; r < lanes; r++, from += x->lane)
                store_lane(to, r, vf_load(from), vf_load(from + VF_LANES), &largest);
        else
            for (int r = 0; r < lanes; r++, from += x->lane)
                store_lane(to, r, vf_load_n(from, ht_min64(VF_LANES, left)),
                           second > 0 ? vf_load_n(from + VF_LANES, second) : vf_set1(0.0f), &largest);
    }
    *most = largest;
}

/* The lanes of a tile of A that are adjacent in memory. */
static __attribute__((noinline)) void transpose_rows(const ht_lanes *x, int64_t lanes, int64_t k, uint8_t *to, vi *most)
{
    vi largest = *most;
    float kept[VF_LANES][VF_LANES] __attribute__((aligned(64)));
    for (int64_t k0 = 0; k0 < k; k0 += STEP, to += STEP_BYTES) {
        vf square[VF_LANES];
        load_square(x->data + k0 * x->step, x->step, k - k0, lanes, square);
        vf_transpose(square);
#pragma GCC unroll 16
        for (int r = 0; r < VF_LANES; r++)
            vf_store(kept[r], square[r]);
        load_square(x->data + (k0 + VF_LANES) * x->step, x->step, k - k0 - VF_LANES, lanes, square);
        vf_transpose(square);
#pragma GCC unroll 16
        for (int r = 0; r < VF_LANES; r++)
            store_lane(to, r, vf_load(kept[r]), square[r], &largest);
    }
    *most = largest;
}

/* The lanes of a tile of B that are adjacent in memory. */
static __attribute__((noinline)) void convert_columns(const ht_lanes *x, int64_t lanes, int64_t k, uint8_t *to, vi *most)
{
    vi largest = *most;
    for (int64_t k0 = 0; k0 < k; k0 += STEP, to += STEP_BYTES) {
        const float *from = x->data + k0 * x->step;
        const int64_t left = ht_min64(STEP, k - k0);
        if (HT_LIKELY(left == STEP && lanes == VF_LANES))
            for (int r = 0; r < STEP / 2; r++, from += 2 * x->step)
                store_parts(to + r * 64, split(vf_load(from), vf_load(from + x->step), &largest));
        else
            for (int r = 0; r < STEP / 2; r++, from += 2 * x->step) {
                const vf x0 = 2 * r < left ? vf_load_n(from, lanes) : vf_set1(0.0f);
                const vf x1 = 2 * r + 1 < left ? vf_load_n(from + x->step, lanes) : vf_set1(0.0f);
                store_parts(to + r * 64, split(x0, x1, &largest));
            }
    }
    *most = largest;
}

/* The lanes of a tile of B whose k are adjacent in memory. */
static __attribute__((noinline)) void transpose_columns(const ht_lanes *x, int64_t lanes, int64_t k, uint8_t *to, vi *most)
{
    vi largest = *most;
    for (int64_t k0 = 0; k0 < k; k0 += STEP, to += STEP_BYTES)
        for (int64_t part = 0; part < 2; part++) {
            vf square[VF_LANES];
            load_square(x->data + k0 + part * VF_LANES, x->lane, lanes, k - k0 - part * VF_LANES, square);
            vf_transpose(square);
#pragma GCC unroll 8
            for (int r = 0; r < VF_LANES; r += 2)
                store_parts(to + (part * VF_LANES + r) / 2 * 64, split(square[r], square[r + 1], &largest));
        }
    *most = largest;
}

HT_INLINE int along_k(const ht_lanes *x) { return x->step == 1 && x->lane != 1; }

/* Converts up to 32 lanes. Returns whether they can be split. */
static int convert_group(const ht_lanes *x, int64_t lanes, int64_t k, uint8_t *to, int are_rows)
{
    vi largest = vi_set1(0);
    for (int64_t first = 0; first < lanes; first += VF_LANES, to += HALF) {
        const ht_lanes some = ht_lanes_from(x, first, 0);
        const int64_t count = ht_min64(VF_LANES, lanes - first);
        if (are_rows)
            (along_k(x) ? convert_rows : transpose_rows)(&some, count, k, to, &largest);
        else
            (along_k(x) ? transpose_columns : convert_columns)(&some, count, k, to, &largest);
    }
    return in_range(largest);
}

static int64_t steps_of(const ht_tiled *t) { return ht_ceil_div(t->k, STEP); }

static uint8_t *columns_of(const ht_tiled *t, int64_t group) { return t->columns + group * steps_of(t) * STEP_BYTES; }

void ht_tiled_convert(ht_tiled *t, const ht_lanes *b, int64_t columns, int64_t first)
{
    HT_ASSERT(first % GROUP == 0 && t->k > 0 && t->k <= HT_SPLIT_K && first + columns <= HT_SPLIT_COLUMNS);
    for (int64_t j = 0; j < columns; j += GROUP) {
        const int64_t group = (first + j) / GROUP, count = ht_min64(GROUP, columns - j);
        const ht_lanes some = ht_lanes_from(b, j, 0);
        uint8_t *to = columns_of(t, group);
        t->plain[group] = !convert_group(&some, count, t->k, to, 0);
        if (HT_LIKELY(!t->plain[group]))
            continue;
        float *panels = (float *)(void *)to;
        for (int64_t i = 0; i < count; i += HT_PANEL, panels += t->k * HT_PANEL) {
            const ht_lanes panel = ht_lanes_from(&some, i, 0);
            const int trans = along_k(b);
            ht_pack_panels(panel.data, trans ? panel.lane : panel.step, trans, t->k, ht_min64(HT_PANEL, count - i), panels, t->k);
        }
    }
}

/* sums[32][32] = A x B for converted groups, of which `tall` and `wide` halves exist. */
HT_INLINE void multiply_tiles(const uint8_t *a, const uint8_t *b, int64_t steps, float *sums, const int tall, const int wide)
{
#define LOAD_A(part)                                                                                                  \
    do {                                                                                                              \
        _tile_loadd(4, a + (part) * PART, 64);                                                                        \
        if (tall > 1)                                                                                                 \
            _tile_loadd(5, a + (part) * PART + HALF, 64);                                                             \
    } while (0)
#define LOAD_B(part)                                                                                                  \
    do {                                                                                                              \
        _tile_loadd(6, b + (part) * PART, 64);                                                                        \
        if (wide > 1)                                                                                                 \
            _tile_loadd(7, b + (part) * PART + HALF, 64);                                                             \
    } while (0)
#define MULTIPLY                                                                                                      \
    do {                                                                                                              \
        _tile_dpbf16ps(0, 4, 6);                                                                                      \
        if (wide > 1)                                                                                                 \
            _tile_dpbf16ps(1, 4, 7);                                                                                  \
        if (tall > 1)                                                                                                 \
            _tile_dpbf16ps(2, 5, 6);                                                                                  \
        if (tall > 1 && wide > 1)                                                                                     \
            _tile_dpbf16ps(3, 5, 7);                                                                                  \
    } while (0)
    enum { H, M, L };
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (; steps > 0; steps--, a += STEP_BYTES, b += STEP_BYTES) {
        LOAD_A(L); /* small products first; each load serves two of the pairs where possible */
        LOAD_B(H);
        MULTIPLY;
        LOAD_A(M);
        MULTIPLY;
        LOAD_B(M);
        MULTIPLY;
        LOAD_A(H);
        MULTIPLY;
        LOAD_B(L);
        MULTIPLY;
        LOAD_B(H);
        MULTIPLY;
    }
#undef LOAD_A
#undef LOAD_B
#undef MULTIPLY
    const int64_t row = GROUP * sizeof(float);
    _tile_stored(0, sums, row);
    if (wide > 1)
        _tile_stored(1, sums + 16, row);
    if (tall > 1)
        _tile_stored(2, sums + 16 * GROUP, row);
    if (tall > 1 && wide > 1)
        _tile_stored(3, sums + 16 * GROUP + 16, row);
}

/* The same for a group of columns that is kept as panels. */
static __attribute__((noinline)) void multiply_plain(const ht_lanes *a, const float *b, int64_t k, float *sums, int64_t rows,
                                                     int64_t columns)
{
    for (int64_t half = 0; half < rows; half += HT_PANEL) {
        const ht_lanes some = ht_lanes_from(a, half, 0);
        const ht_tile t = {.a = some.data, .a_row = some.lane, .a_k = some.step, .b = b, .b_k = HT_PANEL,
                           .b_panel = k * HT_PANEL, .c = sums + half * GROUP, .c_row = GROUP, .k = k};
        ht_gemm_block(&t, 0, ht_min64(HT_PANEL, rows - half), columns);
    }
}

/* C = or += sums, then the epilogue. `e`: of the first row and column. */
HT_INLINE void finish(const float *sums, float *c, int64_t c_row, int64_t rows, int64_t columns, int accumulate,
                      const ht_epilogue *e)
{
    for (int64_t j = 0; j < columns; j += VF_LANES) {
        const int64_t n = ht_min64(VF_LANES, columns - j);
        const vm exist = vm_first(n);
        for (int64_t i = 0; i < rows; i++) {
            float *to = c + i * c_row + j;
            vf x = vf_load(sums + i * GROUP + j);
            if (accumulate)
                x += vf_load_where(to, exist);
            if (e) {
                x *= vf_set1(e->alpha);
                if (e->bias) {
                    const float *bias = e->bias + i * e->bias_row;
                    x = vf_fma(vf_set1(e->beta), e->bias_col ? vf_load_where(bias + j, exist) : vf_set1(*bias), x);
                }
                if (e->addend)
                    x += vf_load_where(e->addend + i * e->addend_row + j, exist);
                x = vf_min(vf_set1(e->high), vf_max(vf_set1(e->low), x));
            }
            _mm512_mask_storeu_ps(to, exist, x);
        }
    }
}

int ht_tiled_multiply(const ht_tiled *t, const ht_lanes *a, int64_t rows, int64_t columns, float *c, int64_t c_row,
                      int accumulate, const ht_epilogue *epilogue, uint8_t plain[HT_TILED_MOST_ROWS / HT_TILED_GROUP])
{
    HT_ASSERT(rows <= HT_TILED_MOST_ROWS && columns <= HT_SPLIT_COLUMNS);
    int any = 0;
    ht_tiles_begin();
    for (int64_t i = 0; i < rows; i += GROUP) {
        const ht_lanes some = ht_lanes_from(a, i, 0);
        const int64_t height = ht_min64(GROUP, rows - i);
        plain[i / GROUP] = !convert_group(&some, height, t->k, t->rows, 1);
        if (HT_UNLIKELY(plain[i / GROUP])) {
            any = 1;
            continue;
        }
        for (int64_t j = 0; j < columns; j += GROUP) {
            const int64_t width = ht_min64(GROUP, columns - j);
            const uint8_t *b = columns_of(t, j / GROUP);
            if (HT_UNLIKELY(t->plain[j / GROUP]))
                multiply_plain(&some, (const float *)(const void *)b, t->k, t->sums, height, width);
            else if (height > HT_PANEL)
                if (width > HT_PANEL)
                    multiply_tiles(t->rows, b, steps_of(t), t->sums, 2, 2);
                else
                    multiply_tiles(t->rows, b, steps_of(t), t->sums, 2, 1);
            else if (width > HT_PANEL)
                multiply_tiles(t->rows, b, steps_of(t), t->sums, 1, 2);
            else
                multiply_tiles(t->rows, b, steps_of(t), t->sums, 1, 1);
            ht_epilogue e;
            if (epilogue) {
                e = *epilogue;
                e.bias = e.bias ? e.bias + i * e.bias_row + j * e.bias_col : NULL;
                e.addend = e.addend ? e.addend + i * e.addend_row + j : NULL;
            }
            finish(t->sums, c + i * c_row + j, c_row, height, width, accumulate, epilogue ? &e : NULL);
        }
    }
    ht_tiles_end();
    return any;
}
