/* Products with weights of 4 or 8 bits whose activations are rounded to 8 bits: matmul_nbits_bytes. nbits.h has the layout
 * of the weights; operands and ints are those of matmul_nbits.
 *
 * Each block of a row of x is rounded to integers q of -127 to 127: q = round(x * (127 / m)), where m is the largest
 * magnitude, and the scale is m / 127, as onnxruntime does for accuracy_level 4. The order of operations decides how
 * halves are rounded, which are frequent if x was dequantized. The products of a block are exact integers:
 *     y = sum over blocks of scale of x * scale of B * (sum of q B - zero point * sum of q) + bias.
 * Results are the same in all instruction sets. NaN or infinity in x makes its row NaN. A scale counts
 * as 0 if 127 / m is not finite (m below 4e-37).
 *   scratch: the rounded rows, as ht_scratch_nbits says. */
#include "integer_vec.h"
#include "nbits.h"
#include "tiles.h"

#include <float.h>

enum {
    ROWS = 4, /* of a tile: their sums fit the registers */
    PAIR = 2  /* vectors of columns at a time for one row, which share its broadcast levels */
};

typedef struct {
    ht_nbits l;
    const float *x, *bias;
    const uint8_t *packed;
    float *y;
    int8_t *levels; /* [rows][blocks][block], those past k are 0; with tiles [blocks][rows][block] */
    float *scales;  /* [rows][blocks][2], or [blocks][rows][2]: the scale of x, and the sum of q */
    int64_t row, rows, panels, parts;
} product;

/* ---- AMX */

#if HT_TILES
enum { LEAST_ROWS = 8, TILE_ROWS = 16, TILE_K = 64 };
#endif

/* Whether tile registers multiply: for blocks that are whole tiles along k, or less than one. */
HT_INLINE int uses_tiles(const product *p)
{
#if HT_TILES
    return p->rows >= LEAST_ROWS && (p->l.block < TILE_K || p->l.block % TILE_K == 0);
#else
    (void)p;
    return 0;
#endif
}

/* ---- x in 8 bits */

static void round_block(const float *x, int64_t count, int64_t block, int8_t *levels, float *scales)
{
    vf largest = vf_set1(0.0f);
    for (int64_t i = 0; i < count; i += VF_LANES)
        largest = vf_max_nan(vf_abs(vf_load_n(x + i, ht_min64(VF_LANES, count - i))), largest);
    const float magnitude = vf_hmax(largest), scale = magnitude / 127.0f, factor = 127.0f / magnitude;
    memset(levels, 0, (size_t)block);
    scales[1] = 0.0f;
    if (!(magnitude <= FLT_MAX)) {
        scales[0] = NAN;
        return;
    }
    scales[0] = factor <= FLT_MAX ? scale : 0.0f;
    if (!(factor <= FLT_MAX))
        return;
    int32_t sum = 0;
    for (int64_t i = 0; i < count; i += VF_LANES) {
        int32_t numbers[VF_LANES];
        const int64_t left = ht_min64(VF_LANES, count - i);
        const vf rounded = vf_round(vf_load_n(x + i, left) * vf_set1(factor));
        const vi whole = vf_to_int(vf_min(vf_set1(127.0f), vf_max(vf_set1(-127.0f), rounded)));
        memcpy(numbers, &whole, sizeof numbers);
        for (int64_t j = 0; j < left; j++) {
            levels[i + j] = (int8_t)numbers[j];
            sum += numbers[j];
        }
    }
    scales[1] = (float)sum;
}

static void round_part(void *context, int64_t part, int thread)
{
    const product *p = context;
    const ht_nbits *l = &p->l;
    const int64_t units = p->rows * l->blocks, end = ht_part_begin(units, p->parts, part + 1);
    int64_t left = HT_PACE;
    (void)thread;
    for (int64_t unit = ht_part_begin(units, p->parts, part); unit < end; unit++) {
        const int64_t row = unit / l->blocks, b = unit % l->blocks, from = b * l->block;
        const int64_t at = uses_tiles(p) ? b * p->rows + row : unit;
        if (ht_paced_stop(&left, l->block))
            return;
        round_block(p->x + (p->row + row) * l->k + from, ht_min64(l->block, l->k - from), l->block,
                    p->levels + at * l->block, p->scales + 2 * at);
    }
}

/* ---- products */

#if HT_VNNI
#define SHORT_SUMS 0
HT_INLINE vi add_quads(vi acc, vi weights, vi levels) { return multiply_quads(acc, weights, levels); }
#else
HT_INLINE vi add_quads(vi acc, vi weights, vi levels)
{
    acc = add_products(acc, pairs_of(weights, 0, 0), pairs_of(levels, 0, 1));
    return add_products(acc, pairs_of(weights, 1, 0), pairs_of(levels, 1, 1));
}

/* Weights of 4 bits: the sum of two products is at most 2 * 15 * 127 = 3810, so eight sums fit 16 bits. */
#if defined(__AVX512F__)
#define SHORT_SUMS 1
HT_INLINE vi add_short(vi acc, vi weights, vi levels)
{
    return _mm512_add_epi16(acc, _mm512_maddubs_epi16(weights, levels));
}
HT_INLINE vi add_shorts(vi acc, vi shorts) { return vi_add(acc, _mm512_madd_epi16(shorts, _mm512_set1_epi16(1))); }
#elif defined(__AVX2__)
#define SHORT_SUMS 1
HT_INLINE vi add_short(vi acc, vi weights, vi levels)
{
    return _mm256_add_epi16(acc, _mm256_maddubs_epi16(weights, levels));
}
HT_INLINE vi add_shorts(vi acc, vi shorts) { return vi_add(acc, _mm256_madd_epi16(shorts, _mm256_set1_epi16(1))); }
#else
#define SHORT_SUMS 0
#endif
#endif

/* Exact sums of products of a block's words with `rows` rows of levels, for `vectors` vectors of columns. */
HT_INLINE void block_sums(const uint8_t *words, int64_t count, const int8_t *levels, int64_t row_step, const int rows,
                          const int vectors, const int bits, vi sums[ROWS][PAIR])
{
    const vi low = vi_set1(0x0f0f0f0f);
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sums[i][v] = vi_set1(0);
    if (bits == 8) {
        for (int64_t w = 0; w < count; w++) {
            vi quads[PAIR];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) {
                quads[v] = ht_nbits_load(words + w * 4 * HT_PANEL + v * VECTOR_BYTES);
                ht_nbits_prefetch(words + w * 4 * HT_PANEL + v * VECTOR_BYTES);
            }
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) {
                const vi level = everywhere((const uint8_t *)levels + i * row_step + 4 * w);
#pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    sums[i][v] = add_quads(sums[i][v], quads[v], level);
            }
        }
        return;
    }
    for (int64_t w = 0; w < count;) {
#if SHORT_SUMS
        vi part[ROWS][PAIR];
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                part[i][v] = vi_set1(0);
        const int64_t end = ht_min64(count, w + 4);
#else
        vi(*part)[PAIR] = sums;
        const int64_t end = count;
#define add_short add_quads
#endif
        for (; w < end; w++) {
            vi first[PAIR], second[PAIR];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) {
                const vi word = ht_nbits_load(words + w * 4 * HT_PANEL + v * VECTOR_BYTES);
                ht_nbits_prefetch(words + w * 4 * HT_PANEL + v * VECTOR_BYTES);
                first[v] = vi_and(word, low);
                second[v] = vi_and(vi_shr(word, 4), low);
            }
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) {
                const uint8_t *at = (const uint8_t *)levels + i * row_step + 8 * w;
                const vi level = everywhere(at), next = everywhere(at + 4);
#pragma GCC unroll 2
                for (int v = 0; v < vectors; v++)
                    part[i][v] = add_short(add_short(part[i][v], first[v], level), second[v], next);
            }
        }
#if SHORT_SUMS
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                sums[i][v] = add_shorts(sums[i][v], part[i][v]);
#endif
    }
}

/* `rows` prepared rows from `row` on, `vectors` vectors of columns of a panel from `column` on. */
HT_INLINE void tile(const product *p, int64_t row, int64_t column, const int rows, const int vectors, const int bits)
{
    const ht_nbits *l = &p->l;
    const int64_t lane = column % HT_PANEL, padded = l->blocks * l->block;
    const uint8_t *block = p->packed + column / HT_PANEL * l->blocks * l->block_bytes;
    vf total[ROWS][PAIR];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            total[i][v] = vf_set1(0.0f);
    for (int64_t b = 0; b < l->blocks; b++, block += l->block_bytes) {
        vi sums[ROWS][PAIR];
        block_sums(ht_nbits_words(l, block) + 4 * lane, l->words, p->levels + row * padded + b * l->block, padded, rows,
                   vectors, bits, sums);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const vf scale = vf_load((const float *)(const void *)block + lane + v * VF_LANES);
            const vf zero = ht_nbits_zeros(l, block, lane + v * VF_LANES);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) {
                /* Exact: all three are whole numbers below 2^24. */
                const float *own = p->scales + 2 * ((row + i) * l->blocks + b);
                const vf exact = vi_to_float(sums[i][v]) - zero * vf_set1(own[1]);
                total[i][v] = total[i][v] + exact * (scale * vf_set1(own[0]));
            }
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            ht_nbits_store(l, p->bias, p->y, p->row + row + i, column + v * VF_LANES, total[i][v]);
}

#if HT_TILES
enum { GROUP_ROWS = 64 }; /* whose totals stay in the L1 cache, and for which a block's weights are widened once */

/* Tiles 0 to 3: sums, 4 and 5: levels, 6: weights. */
static void begin_tiles(const product *p)
{
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config __attribute__((aligned(64))) = {1, 0, {0}, {0}, {0}};
    const int64_t rows = ht_min64(TILE_ROWS, p->rows), depth = ht_min64(TILE_K, p->l.block);
    for (int i = 0; i < 8; i++) {
        config.rows[i] = (uint8_t)(i < 6 ? rows : depth / 4);
        config.row_bytes[i] = (uint16_t)(i == 4 || i == 5 ? depth : 4 * HT_PANEL);
    }
    HT_TILE_FENCE();
    _tile_loadconfig(&config);
}

/* A block's weights of a panel as bytes: in place, or widened to `room`. */
HT_INLINE const uint8_t *widen(const ht_nbits *l, const uint8_t *block, const int bits, uint8_t *room)
{
    const uint8_t *words = ht_nbits_words(l, block);
    const vi low = vi_set1(0x0f0f0f0f);
    if (bits == 8)
        return words;
    for (int64_t w = 0; w < l->words; w++) {
        const vi word = ht_nbits_load(words + w * VECTOR_BYTES);
        _mm512_store_si512(room + 2 * w * VECTOR_BYTES, vi_and(word, low));
        _mm512_store_si512(room + (2 * w + 1) * VECTOR_BYTES, vi_and(vi_shr(word, 4), low));
    }
    return room;
}

#define MULTIPLY(tile, of_a, at)                                                \
    do {                                                                        \
        _tile_zero(tile);                                                       \
        for (int64_t k = 0; k < l->block; k += depth) {                         \
            _tile_loadd(6, weights + k * HT_PANEL, VECTOR_BYTES);               \
            _tile_loadd(of_a, levels + (at) * l->block + k, l->block);          \
            _tile_dpbsud(tile, of_a, 6);                                        \
        }                                                                       \
        _tile_stored(tile, sums[tile], VECTOR_BYTES);                           \
    } while (0)

/* `rows` prepared rows from `row` on, at most GROUP_ROWS, of a panel. The arithmetic is that of `tile`. */
HT_INLINE void group_of_panel(const product *p, int64_t row, int64_t rows, int64_t column, const int bits)
{
    const ht_nbits *l = &p->l;
    const int64_t height = ht_min64(TILE_ROWS, p->rows), depth = ht_min64(TILE_K, l->block);
    const uint8_t *block = p->packed + column / HT_PANEL * l->blocks * l->block_bytes;
    float total[GROUP_ROWS][HT_PANEL] __attribute__((aligned(64)));
    uint8_t widened[2][HT_NBITS_MAX_BYTES_BLOCK * HT_PANEL] __attribute__((aligned(64)));
    int32_t sums[GROUP_ROWS / TILE_ROWS][TILE_ROWS][HT_PANEL] __attribute__((aligned(64)));
    HT_ASSERT(rows <= GROUP_ROWS && row + rows <= p->rows && l->block <= HT_NBITS_MAX_BYTES_BLOCK);
    for (int64_t i = 0; i < rows; i++)
        vf_store(total[i], vf_set1(0.0f));
    const uint8_t *weights = widen(l, block, bits, widened[0]);
    for (int64_t b = 0; b < l->blocks; b++, block += l->block_bytes) {
        const vf scale = vf_load((const float *)(const void *)block), zero = ht_nbits_zeros(l, block, 0);
        const int8_t *levels = p->levels + (b * p->rows + row) * l->block;
        HT_TILE_FENCE();
        /* A tile that would extend past the last row begins earlier; its first sums are not used. */
        MULTIPLY(0, 4, ht_min64(0, rows - height));
        if (rows > TILE_ROWS)
            MULTIPLY(1, 5, ht_min64(TILE_ROWS, rows - height));
        if (rows > 2 * TILE_ROWS)
            MULTIPLY(2, 4, ht_min64(2 * TILE_ROWS, rows - height));
        if (rows > 3 * TILE_ROWS)
            MULTIPLY(3, 5, ht_min64(3 * TILE_ROWS, rows - height));
        if (b + 1 < l->blocks) /* while the tiles multiply */
            weights = widen(l, block + l->block_bytes, bits, widened[(b + 1) & 1]);
        const float *own = p->scales + 2 * (b * p->rows + row);
        for (int64_t t = 0; t < rows; t += TILE_ROWS) {
            const int64_t end = ht_min64(rows, t + TILE_ROWS), skipped = t - ht_min64(t, rows - height);
            const uint8_t *sum = (const uint8_t *)sums[t / TILE_ROWS][skipped];
            for (int64_t i = t; i < end; i++, own += 2, sum += VECTOR_BYTES) {
                const vf exact = vi_to_float(load(sum)) - zero * vf_set1(own[1]);
                vf_store(total[i], vf_load(total[i]) + exact * (scale * vf_set1(own[0])));
            }
        }
    }
    for (int64_t i = 0; i < rows; i++)
        ht_nbits_store(l, p->bias, p->y, p->row + row + i, column, vf_load(total[i]));
}
#endif

HT_INLINE void rows_of_panel(const product *p, int64_t column, const int bits)
{
    const int vectors = HT_PANEL / VF_LANES, pair = vectors < PAIR ? vectors : PAIR;
    int64_t i = 0;
#if HT_TILES
    for (; uses_tiles(p) && i < p->rows; i += GROUP_ROWS)
        group_of_panel(p, i, ht_min64(GROUP_ROWS, p->rows - i), column, bits);
#endif
    for (; i + ROWS <= p->rows; i += ROWS)
        for (int v = 0; v < vectors; v++)
            tile(p, i, column + v * VF_LANES, ROWS, 1, bits);
    for (; i < p->rows; i++)
        for (int v = 0; v < vectors; v += pair)
            tile(p, i, column + v * VF_LANES, 1, pair, bits);
}

static void multiply_part(void *context, int64_t part, int thread)
{
    const product *p = context;
    const int64_t end = ht_part_begin(p->panels, p->parts, part + 1);
    int64_t left = HT_PACE;
    (void)thread;
#if HT_TILES
    if (uses_tiles(p))
        begin_tiles(p);
#endif
    for (int64_t panel = ht_part_begin(p->panels, p->parts, part); panel < end; panel++) {
        if (ht_paced_stop(&left, p->rows * HT_PANEL * p->l.k))
            break;
        if (p->l.bits == 4)
            rows_of_panel(p, panel * HT_PANEL, 4);
        else
            rows_of_panel(p, panel * HT_PANEL, 8);
    }
#if HT_TILES
    if (uses_tiles(p))
        ht_tiles_end();
#endif
}

int HT_KERNEL(matmul_nbits_bytes)(const ht_call *call)
{
    product p;
    const int status = ht_nbits_operands(call, &p.l, &p.x, &p.packed, &p.bias, &p.y);
    if (status != HT_OK)
        return status;
    const int64_t row_bytes = ht_max64(1, ht_scratch_nbits_row(p.l.k, p.l.block));
    if (call->scratch_bytes < row_bytes || p.l.block > HT_NBITS_MAX_BYTES_BLOCK)
        return HT_ERR_OPERAND;
    p.panels = ht_ceil_div(p.l.n, HT_PANEL);
    if (!p.l.n)
        return HT_OK;
    const int64_t most = call->scratch_bytes / row_bytes;
    for (p.row = 0; p.row < p.l.m && !ht_stopping(); p.row += p.rows) {
        p.rows = ht_min64(most, p.l.m - p.row);
        p.scales = call->scratch; /* of the first thread: the others only read it */
        p.levels = (int8_t *)(p.scales + 2 * p.rows * p.l.blocks);
        p.parts = ht_parts(call, p.rows * p.l.blocks, (double)p.rows * (double)p.l.k);
        ht_parallel(call->team, p.parts, round_part, &p);
        p.parts = ht_parts(call, p.panels, (double)p.rows * (double)p.l.n * (double)p.l.k);
        ht_parallel(call->team, p.parts, multiply_part, &p);
    }
    return HT_OK;
}
