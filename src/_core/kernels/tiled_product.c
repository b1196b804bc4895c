/* Products of float32 as sums of products of bfloat16, which AMX multiplies sixteen times as fast.
 *
 * A number x is split into x = h + m + l, three of bfloat16: h is x rounded to 8 bits, m the rest rounded to 8 bits, and
 * l what then remains, at most 8 bits of the 24. So
 *     a b = h h' + (h m' + m h') + (h l' + m m' + l h') + (m l' + l m' + l l'),
 * and the last bracket is at most 2^-24 |a b|, half a unit in the last place of the product. The other six products are
 * exact in float32. A product of tiles adds up 16 of them in float32 for even and for odd k, then adds both to C: fewer
 * additions to large sums than in a plain loop. So errors are at most those of a sum of float32 products in order;
 * measured, a third.
 * G. Henry, P. Tang and A. Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For Higher-Precision
 * Computations", ARITH 2019.
 *
 * AMX takes numbers below 2^-126 for zero and has no use for infinities, whose m would be NaN. So a group of 32 rows of
 * A, or columns of B, is split only if its largest magnitude lies between LEAST and MOST, or is zero. Then sums of a block
 * are finite. What is lost of parts below 2^-126 is at most 2^-124 times the largest magnitude of the other operand, which
 * is less than 2^-83 of the product of both largest magnitudes; sums below 2^-126 are lost too, which is 2^-46 of it. Other groups are multiplied as float32: those of B here, those of A by the caller.
 * Whether a group is split depends on the block of k and the group alone. So results do not depend on how rows and
 * columns are divided, if they are at multiples of HT_TILED_GROUP.
 *
 * Conversions and the stores of finished products use vectors, which are idle while tiles are multiplied, so they are
 * done in between.
 *
 * Converted, a group is a row of steps of 32 k, each [part h, m, l][half: 16 rows or columns][1 kB tile]. Constant operands
 * may be converted once, by pack_parts; their groups follow each other, each with all its k.
 * Cost: six products of tiles for each 32 x 32 x 32, which is 2.4 times as fast as float32 vectors; converting an element
 * takes as long as 20 of the products.
 */
#include "tiled_product.h"

#define GROUP HT_TILED_GROUP
#define STEP HT_TILED_STEP
#define HALF HT_TILE_BYTES
#define PART (2 * HT_TILE_BYTES)
#define STEP_BYTES (3 * PART)

#define LEAST 0x1p-40f
#define MOST 0x1p50f

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
    _mm512_storeu_si512(to, p.h);
    _mm512_storeu_si512(to + PART, p.m);
    _mm512_storeu_si512(to + 2 * PART, p.l);
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

HT_INLINE int along_k(const ht_lanes *x) { return x->step == 1 && x->lane != 1; }

/* A group of up to 32 lanes that is being converted. It consists of halves of 16 lanes; of each, the steps of 32 k; of each,
 * TURNS pieces of work, then 16 rows of a tile. */
typedef struct conversion {
    ht_lanes x;
    int64_t lanes, k, ahead; /* ahead: floats from an element to one of the next group, which is prefetched */
    int64_t halves, done, pieces;
    uint8_t *to;
    const uint8_t *group; /* the result: `to`, or a group that is converted already */
    void (*advance)(struct conversion *, int64_t end);
    vi largest;
    float square[STEP][VF_LANES] __attribute__((aligned(64))); /* of operands that are transposed: 16 lanes of a step */
} conversion;

/* Converts up to piece `end`. */
HT_INLINE void advance(conversion *c, int64_t end, const int are_rows, const int transposes)
{
    enum { TURNS = 2 };
    const int64_t each = VF_LANES + (transposes ? TURNS : 0);
    vi largest = c->largest;
    for (; c->done < end; c->done++) {
        const int64_t block = c->done / each, half = block % c->halves, k0 = block / c->halves * STEP;
        const int64_t r = c->done % each - (transposes ? TURNS : 0);
        const int64_t lanes = ht_min64(VF_LANES, c->lanes - half * VF_LANES), k = ht_min64(STEP, c->k - k0);
        const int64_t lane = c->x.lane, step = c->x.step;
        const float *from = c->x.data + half * c->x.panel + k0 * step;
        uint8_t *to = c->to + k0 / STEP * STEP_BYTES + half * HALF + r * 64;
        if (transposes && r < 0) { /* c->square[k][lane], or of rows of A [two times lane][k] */
            const int64_t second = r + TURNS;
            vf square[VF_LANES];
            if (are_rows) {
                from += second * VF_LANES * step;
                for (int64_t i = 0; i < VF_LANES; i++)
                    __builtin_prefetch(from + i * step + c->ahead, 0, 2);
                load_square(from, step, k - second * VF_LANES, lanes, square);
            } else {
                from += second * VF_LANES;
                for (int64_t i = 0; i < VF_LANES; i++)
                    __builtin_prefetch(from + i * lane + c->ahead, 0, 2);
                load_square(from, lane, lanes, k - second * VF_LANES, square);
            }
            vf_transpose(square);
#pragma GCC unroll 16
            for (int i = 0; i < VF_LANES; i++)
                vf_store(c->square[second * VF_LANES + i], square[i]);
            continue;
        }
        vf x0, x1;
        if (are_rows && transposes) {
            x0 = vf_load(c->square[r]);
            x1 = vf_load(c->square[VF_LANES + r]);
        } else if (transposes) {
            x0 = vf_load(c->square[2 * r]);
            x1 = vf_load(c->square[2 * r + 1]);
        } else {
            from += are_rows ? r * lane : 2 * r * step;
            const float *second = from + (are_rows ? VF_LANES : step);
            __builtin_prefetch(from + c->ahead, 0, 2);
            __builtin_prefetch(second + c->ahead, 0, 2);
            if (HT_LIKELY(k == STEP && lanes == VF_LANES)) {
                x0 = vf_load(from);
                x1 = vf_load(second);
            } else {
                const int64_t first_n = are_rows ? (r < lanes ? ht_min64(VF_LANES, k) : 0) : 2 * r < k ? lanes : 0;
                const int64_t second_n = are_rows ? (r < lanes ? ht_max64(0, k - VF_LANES) : 0) : 2 * r + 1 < k ? lanes : 0;
                x0 = first_n > 0 ? vf_load_n(from, first_n) : vf_set1(0.0f);
                x1 = second_n > 0 ? vf_load_n(second, second_n) : vf_set1(0.0f);
            }
        }
        if (are_rows) {
            const vf even = vf_even(x0, x1);
            x1 = vf_odd(x0, x1);
            x0 = even;
        }
        store_parts(to, split(x0, x1, &largest));
    }
    c->largest = largest;
}

/* Of a converted operand, the pieces are cache lines, which are only prefetched. */
static __attribute__((noinline)) void prefetch_parts(conversion *c, int64_t end)
{
    for (; c->done < end; c->done++)
        __builtin_prefetch(c->group + c->done * HT_ALIGNMENT, 0, 2);
}

static __attribute__((noinline)) void rows_along_k(conversion *c, int64_t end) { advance(c, end, 1, 0); }
static __attribute__((noinline)) void rows_transposed(conversion *c, int64_t end) { advance(c, end, 1, 1); }
static __attribute__((noinline)) void columns_in_order(conversion *c, int64_t end) { advance(c, end, 0, 0); }
static __attribute__((noinline)) void columns_transposed(conversion *c, int64_t end) { advance(c, end, 0, 1); }

static int64_t group_bytes(int64_t k) { return ht_ceil_div(k, STEP) * STEP_BYTES; }

static void begin_conversion(conversion *c, const ht_lanes *x, int64_t lanes, int64_t k, uint8_t *to, int are_rows)
{
    const int transposes = are_rows != along_k(x);
    c->x = *x;
    c->lanes = ht_min64(lanes, GROUP);
    c->k = k;
    c->largest = vi_set1(0);
    c->done = 0;
    if (!x->data) {
        c->group = (const uint8_t *)x->parts;
        c->pieces = group_bytes(k) / HT_ALIGNMENT;
        c->advance = prefetch_parts;
        return;
    }
    c->ahead = lanes > GROUP ? 2 * x->panel : 0;
    c->halves = ht_ceil_div(c->lanes, VF_LANES);
    c->pieces = ht_ceil_div(k, STEP) * c->halves * (VF_LANES + 2 * transposes);
    c->to = to;
    c->group = to;
    c->advance = are_rows ? transposes ? rows_transposed : rows_along_k : transposes ? columns_transposed : columns_in_order;
}

/* Finishes a conversion. Returns whether the group can be split; otherwise columns are kept as panels of float32. */
static int end_conversion(conversion *c, int are_rows)
{
    c->advance(c, c->pieces);
    if (!c->x.data)
        return 1;
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

/* Stores the rows up to `end`: C = or += sums, then the epilogue. */
static __attribute__((noinline)) void finish(pending *p, int64_t end)
{
    const ht_epilogue *e = p->e;
    const int64_t first = p->done;
    end = ht_min64(end, p->rows);
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
 * and converts `next` meanwhile, the latter from its piece `begin` to `end`: a little after each few products, because the
 * processor looks ahead no further. */
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
#define MEANWHILE                                                                                                     \
    do {                                                                                                              \
        stored += store_rate;                                                                                         \
        converted += convert_rate;                                                                                    \
        if (before->done < before->rows)                                                                              \
            finish(before, stored >> 16);                                                                             \
        if (next->done < converted >> 16)                                                                             \
            next->advance(next, converted >> 16);                                                                     \
    } while (0)
    enum { H, M, L };
    int64_t stored = 0, store_rate = (before->rows << 16) / (6 * steps) + 1;
    int64_t converted = begin << 16, convert_rate = ((end - begin) << 16) / (6 * steps);
    HT_TILE_FENCE();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (; steps > 0; steps--, a += STEP_BYTES, b += STEP_BYTES) {
        LOAD_A(L); /* small products first; each load serves two of the pairs where possible */
        LOAD_B(H);
        MULTIPLY;
        MEANWHILE;
        LOAD_A(M);
        MULTIPLY;
        MEANWHILE;
        LOAD_B(M);
        MULTIPLY;
        MEANWHILE;
        LOAD_A(H);
        MULTIPLY;
        MEANWHILE;
        LOAD_B(L);
        MULTIPLY;
        MEANWHILE;
        LOAD_B(H);
        MULTIPLY;
        MEANWHILE;
    }
#undef MEANWHILE
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
    HT_TILE_FENCE();
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

/* A pass: what does not change from product to product, and what is on its way. */
typedef struct {
    const ht_tiled *held;
    ht_lanes a;
    int64_t rows, columns, steps;
    float *c;
    int64_t c_row;
    int accumulate;
    const ht_epilogue *epilogue;
    float *sums, *other;
    pending before;
    conversion next;
} pass;

/* C's rows i and so on, columns j and so on. a, b: the converted groups. Converts pieces of p->next meanwhile. */
static void multiply_groups(pass *p, int64_t i, int64_t j, const uint8_t *a, const uint8_t *b, int b_splits, int64_t begin,
                            int64_t end)
{
    const int64_t height = ht_min64(GROUP, p->rows - i), width = ht_min64(GROUP, p->columns - j);
    if (HT_UNLIKELY(!b_splits)) {
        ht_lanes some = ht_lanes_from(&p->a, i, 0);
        if (!some.data) {
            ht_tiled_unpack(&some, height, p->held->k, 1, p->held->spare);
            some = (ht_lanes){p->held->spare, p->held->k * HT_PANEL, 1, HT_PANEL, NULL, 0};
        }
        multiply_plain(&some, (const float *)(const void *)b, p->held->k, p->sums, height, width);
    } else if (height > HT_PANEL && width > HT_PANEL)
        multiply_tiles(a, b, p->steps, p->sums, &p->before, &p->next, begin, end, 2, 2);
    else if (height > HT_PANEL)
        multiply_tiles(a, b, p->steps, p->sums, &p->before, &p->next, begin, end, 2, 1);
    else if (width > HT_PANEL)
        multiply_tiles(a, b, p->steps, p->sums, &p->before, &p->next, begin, end, 1, 2);
    else
        multiply_tiles(a, b, p->steps, p->sums, &p->before, &p->next, begin, end, 1, 1);
    finish(&p->before, GROUP);
    p->before = (pending){p->sums, p->c + i * p->c_row + j, p->c_row, height, width, 0, p->accumulate, p->epilogue, i, j};
    float *last = p->sums;
    p->sums = p->other;
    p->other = last;
}

void ht_tiled_hold(ht_tiled *t, const ht_lanes *x, int64_t lanes, int64_t k, int are_rows, void *scratch)
{
    HT_ASSERT(lanes > 0 && lanes <= HT_TILED_HELD && k > 0 && k <= HT_TILED_MOST_K);
    const int64_t groups = ht_ceil_div(lanes, GROUP), bytes = group_bytes(k);
    uint8_t *converted = scratch;
    t->x = *x;
    t->lanes = lanes;
    t->k = k;
    t->are_rows = are_rows;
    t->passing = converted + (x->data ? groups : 1) * bytes;
    t->spare = (float *)(void *)(x->data ? t->passing : converted);
    t->sums = (float *)(void *)(t->passing + 2 * bytes);
    t->groups = x->data ? converted : (const uint8_t *)x->parts;
    t->group_bytes = x->data ? bytes : x->parts_group * (int64_t)sizeof(float);
    conversion c;
    for (int64_t g = 0; g < groups; g++) {
        t->splits[g] = 1;
        if (!x->data)
            continue;
        const ht_lanes some = ht_lanes_from(x, g * GROUP, 0);
        begin_conversion(&c, &some, lanes - g * GROUP, k, converted + g * bytes, are_rows);
        t->splits[g] = (uint8_t)end_conversion(&c, are_rows);
    }
}

int ht_tiled_pass(const ht_tiled *t, const ht_lanes *other, int64_t lanes, float *c, int64_t c_row, int accumulate,
                  const ht_epilogue *epilogue, uint8_t plain[HT_TILED_MOST_ROWS / HT_TILED_GROUP])
{
    const int holds_rows = t->are_rows;
    const int64_t k = t->k, groups = ht_ceil_div(t->lanes, GROUP), bytes = group_bytes(k);
    pass p = {.held = t, .a = holds_rows ? t->x : *other, .rows = holds_rows ? t->lanes : lanes,
              .columns = holds_rows ? lanes : t->lanes, .steps = ht_ceil_div(k, STEP), .c = c, .c_row = c_row,
              .accumulate = accumulate, .epilogue = epilogue, .sums = t->sums, .other = t->sums + GROUP * GROUP};
    HT_ASSERT(lanes > 0 && p.rows <= HT_TILED_MOST_ROWS);
    int any = 0;
    for (int64_t g = 0; holds_rows && g < groups; g++) {
        plain[g] = !t->splits[g];
        any |= plain[g];
    }
    begin_conversion(&p.next, other, lanes, k, t->passing, !holds_rows);
    ht_tiles_begin();
    for (int64_t i = 0; i < lanes; i += GROUP) {
        const int splits = end_conversion(&p.next, !holds_rows);
        const uint8_t *current = p.next.group;
        if (i + GROUP < lanes) {
            const ht_lanes x = ht_lanes_from(other, i + GROUP, 0);
            begin_conversion(&p.next, &x, lanes - i - GROUP, k, current == t->passing ? t->passing + bytes : t->passing,
                             !holds_rows);
        }
        if (!holds_rows) {
            plain[i / GROUP] = !splits;
            any |= !splits;
            if (HT_UNLIKELY(!splits))
                continue;
        }
        for (int64_t g = 0; g < groups; g++) {
            const int64_t begin = p.next.pieces * g / groups, end = p.next.pieces * (g + 1) / groups;
            const uint8_t *h = t->groups + g * t->group_bytes;
            if (!holds_rows)
                multiply_groups(&p, i, g * GROUP, current, h, t->splits[g], begin, end);
            else if (t->splits[g])
                multiply_groups(&p, g * GROUP, i, h, current, splits, begin, end);
        }
    }
    finish(&p.before, GROUP);
    ht_tiles_end();
    return any;
}

int ht_tiled_pack(const ht_lanes *x, int64_t lanes, int64_t k, int are_rows, const float *scale, float *to)
{
    const float least = 0x1p-64f; /* the product with the least of LEAST is far from denormal, and parts are multiples of 2^-87 */
    const int along = along_k(x);
    float block[GROUP * HT_TILED_K];
    ht_lanes some = along ? (ht_lanes){block, HT_PANEL * HT_TILED_K, HT_TILED_K, 1, NULL, 0} : (ht_lanes){block, HT_PANEL, 1, GROUP, NULL, 0};
    for (int64_t k0 = 0; k0 < k; k0 += HT_TILED_K) {
        const int64_t terms = ht_min64(HT_TILED_K, k - k0);
        int fits = 1;
        for (int64_t i = 0; i < lanes; i++) {
            const float factor = scale ? scale[i] : 1.0f;
            const float *from = x->data + i / HT_PANEL * x->panel + i % HT_PANEL * x->lane + k0 * x->step;
            float *into = block + (along ? i * HT_TILED_K : i);
            for (int64_t j = 0; j < terms; j++) {
                const float element = from[j * x->step] * factor, magnitude = fabsf(element);
                into[along ? j : j * GROUP] = element;
                fits &= element == 0 || (magnitude >= least && magnitude <= MOST);
            }
        }
        if (!fits)
            return 0;
        uint8_t *group = (uint8_t *)(to + ht_parts_floats(k0, GROUP));
        if (lanes <= HT_PANEL) /* the second half is never read, but it may be written to a file */
            memset(group, 0, (size_t)group_bytes(terms));
        conversion c;
        begin_conversion(&c, &some, lanes, terms, group, are_rows);
        c.advance(&c, c.pieces);
    }
    return 1;
}

/* The sums of the parts of a tile's row: of its pairs, the first numbers and the second ones. */
HT_INLINE void join_parts(const uint8_t *row, vf *first, vf *second)
{
    const vi high = vi_set1((int32_t)0xffff0000);
    vi part = _mm512_loadu_si512(row);
    *first = vi_as_float(vi_shl(part, 16));
    *second = vi_as_float(vi_and(part, high));
    for (int64_t at = PART; at < STEP_BYTES; at += PART) {
        part = _mm512_loadu_si512(row + at);
        *first += vi_as_float(vi_shl(part, 16));
        *second += vi_as_float(vi_and(part, high));
    }
}

void ht_tiled_unpack(const ht_lanes *x, int64_t lanes, int64_t k, int are_rows, float *panels)
{
    for (int64_t i = 0; i < lanes; i += HT_PANEL) {
        const uint8_t *step = (const uint8_t *)(x->parts + i / GROUP * x->parts_group) + i % GROUP / HT_PANEL * HALF;
        float *panel = panels + i * k;
        for (int64_t k0 = 0; k0 < k; k0 += STEP, step += STEP_BYTES) {
            vf even[VF_LANES], odd[VF_LANES];
            for (int r = 0; r < VF_LANES; r++)
                join_parts(step + r * 64, &even[r], &odd[r]);
            if (are_rows) {
                vf_transpose(even);
                vf_transpose(odd);
            }
            for (int r = 0; r < VF_LANES && k0 + 2 * r < k; r++) {
                vf_store(panel + (k0 + 2 * r) * HT_PANEL, even[r]);
                if (k0 + 2 * r + 1 < k)
                    vf_store(panel + (k0 + 2 * r + 1) * HT_PANEL, odd[r]);
            }
        }
    }
}
