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
 * Both conversions and the stores of finished products use vectors, which are idle while tiles are multiplied, so they are
 * done in between.
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

/* Rows [begin, end) of one half of the tiles of a step, from sixteen lanes, of which `lanes` and `k` terms exist. The same
 * of the lanes that are converted next, `ahead` floats on, are prefetched. */
typedef struct {
    const float *from;
    int64_t lane, step, lanes, k, ahead;
    int begin, end;
} piece;

/* A's lanes, if their k are adjacent in memory. */
static __attribute__((noinline)) void convert_rows(const piece *p, uint8_t *to, vi *most)
{
    vi largest = *most;
    const float *from = p->from + p->begin * p->lane;
    const int64_t second = ht_max64(0, p->k - VF_LANES);
    for (int r = p->begin; r < ht_min64(p->end, p->lanes); r++, from += p->lane) {
        __builtin_prefetch(from + p->ahead, 0, 2);
        __builtin_prefetch(from + p->ahead + VF_LANES, 0, 2);
        if (HT_LIKELY(p->k == STEP))
            store_lane(to, r, vf_load(from), vf_load(from + VF_LANES), &largest);
        else
            store_lane(to, r, vf_load_n(from, ht_min64(VF_LANES, p->k)),
                       second > 0 ? vf_load_n(from + VF_LANES, second) : vf_set1(0.0f), &largest);
    }
    *most = largest;
}

/* A's lanes, if they are adjacent in memory. */
static __attribute__((noinline)) void transpose_rows(const piece *p, uint8_t *to, vi *most)
{
    vi largest = *most;
    float kept[VF_LANES][VF_LANES] __attribute__((aligned(64)));
    vf square[VF_LANES];
    if (p->begin > 0)
        return; /* all rows were converted with the first */
    for (int64_t i = 0; i < p->k; i++)
        __builtin_prefetch(p->from + i * p->step + p->ahead, 0, 2);
    load_square(p->from, p->step, p->k, p->lanes, square);
    vf_transpose(square);
#pragma GCC unroll 16
    for (int r = 0; r < VF_LANES; r++)
        vf_store(kept[r], square[r]);
    load_square(p->from + VF_LANES * p->step, p->step, p->k - VF_LANES, p->lanes, square);
    vf_transpose(square);
#pragma GCC unroll 16
    for (int r = 0; r < VF_LANES; r++)
        store_lane(to, r, vf_load(kept[r]), square[r], &largest);
    *most = largest;
}

/* B's lanes, if they are adjacent in memory. */
static __attribute__((noinline)) void convert_columns(const piece *p, uint8_t *to, vi *most)
{
    vi largest = *most;
    const float *from = p->from + p->begin * 2 * p->step;
    for (int r = p->begin; r < p->end; r++, from += 2 * p->step) {
        __builtin_prefetch(from + p->ahead, 0, 2);
        __builtin_prefetch(from + p->step + p->ahead, 0, 2);
        if (HT_LIKELY(p->k == STEP && p->lanes == VF_LANES)) {
            store_parts(to + r * 64, split(vf_load(from), vf_load(from + p->step), &largest));
        } else {
            const vf x0 = 2 * r < p->k ? vf_load_n(from, p->lanes) : vf_set1(0.0f);
            const vf x1 = 2 * r + 1 < p->k ? vf_load_n(from + p->step, p->lanes) : vf_set1(0.0f);
            store_parts(to + r * 64, split(x0, x1, &largest));
        }
    }
    *most = largest;
}

/* B's lanes, if their k are adjacent in memory. */
static __attribute__((noinline)) void transpose_columns(const piece *p, uint8_t *to, vi *most)
{
    vi largest = *most;
    for (int64_t r = 0; r < p->lanes; r++) {
        __builtin_prefetch(p->from + r * p->lane + p->ahead, 0, 2);
        __builtin_prefetch(p->from + r * p->lane + p->ahead + VF_LANES, 0, 2);
    }
    for (int64_t half = 2 * p->begin; half < 2 * p->end; half += VF_LANES) {
        vf square[VF_LANES];
        load_square(p->from + half, p->lane, p->lanes, p->k - half, square);
        vf_transpose(square);
#pragma GCC unroll 8
        for (int r = 0; r < VF_LANES; r += 2)
            store_parts(to + (half + r) / 2 * 64, split(square[r], square[r + 1], &largest));
    }
    *most = largest;
}

HT_INLINE int along_k(const ht_lanes *x) { return x->step == 1 && x->lane != 1; }

/* A group of up to 32 lanes that is being converted, piece by piece. */
typedef struct {
    ht_lanes x;
    int64_t lanes, k, ahead;
    uint8_t *to;
    void (*convert)(const piece *, uint8_t *, vi *);
    int64_t done, pieces;
    vi largest;
} conversion;

static conversion begin_conversion(const ht_lanes *x, int64_t lanes, int64_t k, uint8_t *to, int are_rows, int has_next)
{
    conversion c = {.x = *x, .lanes = ht_min64(lanes, GROUP), .k = k, .to = to, .ahead = has_next ? 2 * x->panel : 0};
    c.pieces = ht_ceil_div(k, STEP) * ht_ceil_div(c.lanes, VF_LANES) * 2;
    c.convert = are_rows ? along_k(x) ? convert_rows : transpose_rows : along_k(x) ? transpose_columns : convert_columns;
    c.largest = vi_set1(0);
    return c;
}

/* Converts up to piece `end`. */
static void convert(conversion *c, int64_t end)
{
    const int64_t halves = ht_ceil_div(c->lanes, VF_LANES);
    for (; c->done < ht_min64(end, c->pieces); c->done++) {
        const int64_t eight = c->done % 2, half = c->done / 2 % halves, step = c->done / 2 / halves;
        const ht_lanes x = ht_lanes_from(&c->x, half * VF_LANES, step * STEP);
        const piece p = {x.data, x.lane, x.step, ht_min64(VF_LANES, c->lanes - half * VF_LANES),
                         ht_min64(STEP, c->k - step * STEP), c->ahead, (int)eight * 8, (int)eight * 8 + 8};
        c->convert(&p, c->to + step * STEP_BYTES + half * HALF, &c->largest);
    }
}

/* Finishes a conversion. Returns whether the group can be split; otherwise columns are kept as panels of float32. */
static int end_conversion(conversion *c, int are_rows)
{
    convert(c, c->pieces);
    const int splits = in_range(c->largest);
    if (HT_UNLIKELY(!splits && !are_rows))
        for (int64_t i = 0; i < c->lanes; i += HT_PANEL) {
            const ht_lanes panel = ht_lanes_from(&c->x, i, 0);
            const int trans = along_k(&c->x);
            ht_pack_panels(panel.data, trans ? panel.lane : panel.step, trans, c->k, ht_min64(HT_PANEL, c->lanes - i),
                           (float *)(void *)c->to + i * c->k, c->k);
        }
    return splits;
}

/* A product of two groups on its way to C. It is stored while the next is computed, which uses other units of the
 * processor. */
typedef struct {
    const float *sums;
    float *c;
    int64_t c_row, rows, columns, done; /* done: rows that are stored */
    int accumulate;
    const ht_epilogue *e;               /* of C's first row and column, or NULL */
    int64_t row, column;                /* of the epilogue's matrices */
} pending;

/* Stores up to `count` more rows: C = or += sums, then the epilogue. */
static __attribute__((noinline)) void finish(pending *p, int64_t count)
{
    const ht_epilogue *e = p->e;
    const int64_t first = p->done, end = ht_min64(first + count, p->rows);
    p->done = end;
    for (int64_t j = 0; j < p->columns; j += VF_LANES) {
        const vm exist = vm_first(ht_min64(VF_LANES, p->columns - j));
        for (int64_t i = first; i < end; i++) {
            float *to = p->c + i * p->c_row + j;
            vf x = vf_load(p->sums + i * GROUP + j);
            if (p->accumulate)
                x += vf_load_where(to, exist);
            if (e) {
                const int64_t row = p->row + i, column = p->column + j;
                x *= vf_set1(e->alpha);
                if (e->bias) {
                    const float *bias = e->bias + row * e->bias_row;
                    x = vf_fma(vf_set1(e->beta), e->bias_col ? vf_load_where(bias + column, exist) : vf_set1(*bias), x);
                }
                if (e->addend)
                    x += vf_load_where(e->addend + row * e->addend_row + column, exist);
                x = vf_min(vf_set1(e->high), vf_max(vf_set1(e->low), x));
            }
            _mm512_mask_storeu_ps(to, exist, x);
        }
    }
}

/* sums[32][32] = A x B for converted groups, of which `tall` and `wide` halves exist. Stores `before`
 * and converts `next` meanwhile, the latter from its piece `begin` to `end`. */
HT_INLINE void multiply_tiles(const uint8_t *a, const uint8_t *b, int64_t steps, float *sums, pending *before,
                               conversion *next, int64_t begin, int64_t end, const int tall, const int wide)
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
    const int64_t share = ht_ceil_div(before->rows, steps), all = steps;
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
        convert(next, begin + (end - begin) * (2 * (all - steps) + 1) / (2 * all));
        LOAD_A(H);
        MULTIPLY;
        LOAD_B(L);
        MULTIPLY;
        LOAD_B(H);
        MULTIPLY;
        if (before->done < before->rows)
            finish(before, share);
        convert(next, begin + (end - begin) * (all - steps + 1) / all);
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

/* Groups of both operands, and what is on its way. */
typedef struct {
    const ht_tiled *t;
    int64_t steps;
    float *sums, *other;
    pending before;
    conversion next;
} product;

/* C's rows i and so on, columns j and so on. a, b: the converted groups. Converts pieces of p->next meanwhile. */
static void multiply_groups(product *p, int64_t i, int64_t j, const uint8_t *a, const uint8_t *b, int b_is_plain,
                            int64_t begin, int64_t end)
{
    const ht_tiled *t = p->t;
    const int64_t height = ht_min64(GROUP, t->rows - i), width = ht_min64(GROUP, t->columns - j);
    if (HT_UNLIKELY(b_is_plain)) {
        const ht_lanes some = ht_lanes_from(&t->a, i, 0);
        multiply_plain(&some, (const float *)(const void *)b, t->k, p->sums, height, width);
    } else if (height > HT_PANEL && width > HT_PANEL)
        multiply_tiles(a, b, p->steps, p->sums, &p->before, &p->next, begin, end, 2, 2);
    else if (height > HT_PANEL)
        multiply_tiles(a, b, p->steps, p->sums, &p->before, &p->next, begin, end, 2, 1);
    else if (width > HT_PANEL)
        multiply_tiles(a, b, p->steps, p->sums, &p->before, &p->next, begin, end, 1, 2);
    else
        multiply_tiles(a, b, p->steps, p->sums, &p->before, &p->next, begin, end, 1, 1);
    finish(&p->before, p->before.rows);
    p->before = (pending){p->sums, t->c + i * t->c_row + j, t->c_row, height, width, 0, t->accumulate, t->epilogue, i, j};
    float *last = p->sums;
    p->sums = p->other;
    p->other = last;
}

int ht_tiled_multiply(const ht_tiled *t, uint8_t plain[HT_TILED_MOST_ROWS / HT_TILED_GROUP])
{
    enum { MOST_HELD = HT_SPLIT_GEMM / GROUP };
    HT_ASSERT(t->k > 0 && t->k <= HT_SPLIT_K && t->rows <= HT_TILED_MOST_ROWS && t->held <= HT_SPLIT_GEMM);
    /* The operand with fewer lanes is converted first and held; the other is converted a group at a time, each while the one
     * before is multiplied. */
    const int holds_rows = t->rows < t->columns;
    const ht_lanes *held = holds_rows ? &t->a : &t->b, *passing = holds_rows ? &t->b : &t->a;
    const int64_t all = holds_rows ? t->rows : t->columns, others = holds_rows ? t->columns : t->rows;
    product p = {.t = t, .steps = ht_ceil_div(t->k, STEP)};
    const int64_t group_bytes = p.steps * STEP_BYTES;
    uint8_t *const kept = (uint8_t *)t->scratch, *const two = kept + t->held / GROUP * group_bytes;
    p.sums = (float *)(void *)(two + 2 * group_bytes);
    p.other = p.sums + GROUP * GROUP;
    int any = 0, splits[MOST_HELD];
    ht_tiles_begin();
    for (int64_t first = 0; first < all; first += t->held) {
        const int64_t lanes = ht_min64(t->held, all - first), groups = ht_ceil_div(lanes, GROUP);
        for (int64_t g = 0; g < groups; g++) {
            const ht_lanes x = ht_lanes_from(held, first + g * GROUP, 0);
            conversion c = begin_conversion(&x, lanes - g * GROUP, t->k, kept + g * group_bytes, holds_rows, g + 1 < groups);
            splits[g] = end_conversion(&c, holds_rows);
            if (holds_rows) {
                plain[first / GROUP + g] = !splits[g];
                any |= !splits[g];
            }
        }
        p.next = begin_conversion(passing, others, t->k, two, !holds_rows, others > GROUP);
        for (int64_t i = 0; i < others; i += GROUP) {
            const int current_splits = end_conversion(&p.next, !holds_rows);
            const uint8_t *current = p.next.to;
            if (i + GROUP < others) {
                const ht_lanes x = ht_lanes_from(passing, i + GROUP, 0);
                p.next = begin_conversion(&x, others - i - GROUP, t->k, current == two ? two + group_bytes : two, !holds_rows,
                                          i + 2 * GROUP < others);
            }
            if (!holds_rows) {
                plain[i / GROUP] = !current_splits;
                any |= !current_splits;
                if (HT_UNLIKELY(!current_splits))
                    continue;
            }
            for (int64_t g = 0; g < groups; g++) {
                const int64_t begin = p.next.pieces * g / groups, end = p.next.pieces * (g + 1) / groups;
                const uint8_t *h = kept + g * group_bytes;
                if (holds_rows && splits[g])
                    multiply_groups(&p, first + g * GROUP, i, h, current, !current_splits, begin, end);
                else if (!holds_rows)
                    multiply_groups(&p, i, first + g * GROUP, current, h, !splits[g], begin, end);
            }
        }
    }
    finish(&p.before, p.before.rows);
    ht_tiles_end();
    return any;
}
