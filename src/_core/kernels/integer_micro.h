/* Products of 8-bit integers with exact 32-bit sums, shared by integer_gemm.c and conv_integer.c.
 *
 * Four adjacent elements along k are a *quad*. A tile adds to C[rows][columns] the products of A's quads, each
 * broadcast to a vector, with vectors of quads of B. One operand holds unsigned bytes and the other signed ones,
 * because the VNNI instruction vpdpbusd multiplies four such pairs of bytes and adds the products to a 32-bit lane,
 * exactly. Without VNNI both are widened to 16 bits in registers and multiplied in pairs (pmaddwd), also exactly.
 * vpmaddubsw needs no widening, but adds two products in 16 bits, with saturation. It is used if the signed operand is
 * *small*: no two of its bytes that are added have positive ones above 128 or negative ones below -128 in total, as
 * 255 * 129 exceeds 2^15. Weights of 7 bits are. With AMX, integer_tiles.h multiplies the same operands.
 *
 * Filters are *tiny* if the same holds for each four bytes of an even quad and the next one that are added. Their products are
 * then added in 16 bits before they are widened. Most filters of 7 bits have few quads for which this does not hold, and most
 * filters of 8 bits have few quads that are not small: conv_integer.c adds the products of these separately.
 *
 * A byte of the other signedness is stored with its highest bit flipped, which shifts it and its zero point by 128.
 * With x' and w' as stored and z, v their zero points shifted alike,
 *     sum (x' - z)(w' - v) = sum x' w'  -  z sum w'  -  v sum x'  +  k z v.
 * All terms except the first are known per row and per column before the product, and are C's initial values. Sums
 * wrap, so intermediate values may too. If all w - v are bytes, they are stored instead, with a zero point of 0.
 */
#ifndef HETERO_INTEGER_MICRO_H
#define HETERO_INTEGER_MICRO_H

#include "gemm_micro.h"
#include "layouts.h"

/* As for floats, accumulators fill the register file, but tiles are narrower: scratch memory counts on two panels. */
#if defined(__AVX512F__)
#define HT_INTEGER_ROWS 12
#define HT_INTEGER_PANELS 2
#define HT_EACH_INTEGER_HEIGHT(X) HT_HEIGHTS_12(X)
#define HT_EACH_INTEGER_PANELS(X, rows) HT_PANELS_2(X, rows)
#define HT_INTEGER_ENTRY(prefix, rows) {HT_ENTRIES_2(prefix, rows)},
#else
#define HT_INTEGER_ROWS HT_TILE_ROWS
#define HT_INTEGER_PANELS HT_TILE_PANELS
#define HT_EACH_INTEGER_HEIGHT(X) HT_EACH_HEIGHT(X)
#define HT_EACH_INTEGER_PANELS(X, rows) HT_EACH_PANELS(X, rows)
#define HT_INTEGER_ENTRY(prefix, rows) HT_TILE_ENTRY(prefix, rows)
#endif
#define HT_INTEGER_WIDTH (HT_INTEGER_PANELS * HT_PANEL) /* columns of a tile; C's rows have as many */
#define HT_PANEL_BYTES (HT_PANEL * HT_QUAD) /* a quad of each column of a panel */

#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define HT_VNNI 1
#define HT_A_QUAD 4 /* bytes of a quad of A */
#else
#define HT_VNNI 0
#define HT_A_QUAD 8 /* as int16: elements 0 and 2, then 1 and 3, as shifts extract them from B's lanes */
#endif

/* Whether tiles of bytes exist for small operands. */
#if !HT_VNNI && defined(__AVX2__)
#define HT_SMALL_TILES 1
#else
#define HT_SMALL_TILES 0
#endif

/* Whether tiles exist for tiny filters. */
#if HT_SMALL_TILES && !defined(__AVX512F__)
#define HT_TINY_TILES 1
#else
#define HT_TINY_TILES 0
#endif

/* A packed zero point: an int8 in the lowest byte, and whether its filter or panel is small, and its filter tiny or
 * nearly small: at most one of HT_NEARLY quads is not small. */
#define HT_IS_SMALL 0x100
#define HT_IS_TINY 0x200
#define HT_IS_NEARLY_SMALL 0x400
#define HT_NEARLY 6
HT_INLINE int32_t ht_zero_point(int32_t word) { return (int8_t)word; }
HT_INLINE int32_t ht_zero_word(int32_t zero, int flags) { return (zero & 0xff) | flags; }

/* HT_IS_SMALL if signed bytes, added in adjacent pairs, are small, else 0. An even number. */
HT_INLINE int ht_is_small(const uint8_t *bytes, int64_t n)
{
    int16_t most = 0, least = 0;
    for (int64_t i = 0; i < n; i += 2) {
        const int16_t a = (int8_t)bytes[i], b = (int8_t)bytes[i + 1];
        const int16_t above = (int16_t)((a > 0 ? a : 0) + (b > 0 ? b : 0)), below = (int16_t)((a < 0 ? a : 0) + (b < 0 ? b : 0));
        most = above > most ? above : most;
        least = below < least ? below : least;
    }
    return most <= 128 && least >= -128 ? HT_IS_SMALL : 0;
}

/* HT_IS_NEARLY_SMALL if a filter is, else 0. */
HT_INLINE int ht_is_nearly_small(const uint8_t *quads, int64_t count)
{
    int64_t large = 0;
    for (int64_t q = 0; q < count; q++)
        large += !ht_is_small(quads + HT_QUAD * q, HT_QUAD);
    return large * HT_NEARLY <= count ? HT_IS_NEARLY_SMALL : 0;
}

/* HT_IS_TINY if a filter of small bytes is tiny, else 0. */
HT_INLINE int ht_is_tiny(const uint8_t *quads, int64_t count)
{
    for (int64_t i = 0; i < HT_QUAD * (count - 1); i += 2 * HT_QUAD)
        for (int64_t j = i; j < i + HT_QUAD; j += 2) {
            const uint8_t four[4] = {quads[j], quads[j + 1], quads[j + HT_QUAD], quads[j + HT_QUAD + 1]};
            int above = 0, below = 0;
            for (int k = 0; k < 4; k++) {
                const int8_t byte = (int8_t)four[k];
                above += byte > 0 ? byte : 0;
                below += byte < 0 ? byte : 0;
            }
            if (above > 128 || below < -128)
                return 0;
        }
    return HT_IS_TINY;
}

typedef struct {
    const uint8_t *a;      /* prepared by ht_prepare_quads */
    int64_t a_row;         /* bytes */
    const uint8_t *b;
    int64_t b_panel;       /* bytes from a panel's vectors to the next panel's */
    const int64_t *steps;  /* windows: offset of each quad in bytes from b. Products: quad q lies at q * 64 */
    int64_t quads;
    const int32_t *start;  /* initial value of C per row, or NULL: keep its contents */
    int32_t *c;            /* [rows][HT_INTEGER_WIDTH] */
} ht_integer_tile;

typedef void (*ht_integer_tile_fn)(const ht_integer_tile *);

/* [rows - 1][panels - 1]. Products: A unsigned, B signed. Windows: A signed, B unsigned. */
#define ht_product_tiles HT_KERNEL(product_tiles)
extern const ht_integer_tile_fn ht_product_tiles[HT_INTEGER_ROWS][HT_INTEGER_PANELS];
#define ht_window_tiles HT_KERNEL(window_tiles)
extern const ht_integer_tile_fn ht_window_tiles[HT_INTEGER_ROWS][HT_INTEGER_PANELS];
#if HT_SMALL_TILES /* the signed operand is small, and A's quads are bytes */
#define ht_small_product_tiles HT_KERNEL(small_product_tiles)
extern const ht_integer_tile_fn ht_small_product_tiles[HT_INTEGER_ROWS][HT_INTEGER_PANELS];
#define ht_small_window_tiles HT_KERNEL(small_window_tiles)
extern const ht_integer_tile_fn ht_small_window_tiles[HT_INTEGER_ROWS][HT_INTEGER_PANELS];
#endif
#if HT_TINY_TILES
#define HT_TINY_ROWS 5 /* whose sums fit the registers */
#define ht_expanded_window_tiles HT_KERNEL(expanded_window_tiles) /* [is tiny][rows - 1]. A: see expand in conv_integer.c */
extern const ht_integer_tile_fn ht_expanded_window_tiles[2][HT_TINY_ROWS];
#endif

typedef const ht_integer_tile_fn (*ht_tile_table)[HT_INTEGER_PANELS];

/* The tiles of products or windows. is_small: whether the signed operand is. */
HT_INLINE ht_tile_table ht_tiles_for(int windows, int is_small)
{
#if HT_SMALL_TILES
    if (is_small)
        return windows ? ht_small_window_tiles : ht_small_product_tiles;
#else
    (void)is_small;
#endif
    return windows ? ht_window_tiles : ht_product_tiles;
}

/* Whether there are tiles for small operands and all of `count` zero words, `step` bytes apart, say so. */
HT_INLINE int ht_all_small(const uint8_t *words, int64_t count, int64_t step)
{
    for (int64_t i = 0; HT_SMALL_TILES && i < count; i++) {
        int32_t word;
        memcpy(&word, words + i * step, sizeof word);
        if (!(word & HT_IS_SMALL))
            return 0;
    }
    return HT_SMALL_TILES;
}

/* C += A x B for `rows` rows of A, in tiles of nearly equal height. t: describes row 0. */
HT_INLINE void ht_integer_rows(const ht_integer_tile_fn tiles[HT_INTEGER_ROWS][HT_INTEGER_PANELS], const ht_integer_tile *t,
                               int64_t rows, int64_t columns)
{
    const int64_t count = ht_ceil_div(rows, HT_INTEGER_ROWS);
    ht_integer_tile at = *t;
    for (int64_t i = 0; i < count; i++) {
        const int64_t height = rows / count + (i < rows % count);
        tiles[height - 1][(columns - 1) / HT_PANEL](&at);
        at.a += height * at.a_row;
        at.start += at.start ? height : 0;
        at.c += height * HT_INTEGER_WIDTH;
    }
}

/* Converts a row of k bytes to quads of A, the last padded with zeros. Each byte is XORed with `flip` (0 or 0x80) and
 * then read as signed or unsigned. as_bytes: whether quads have 4 bytes instead of HT_A_QUAD. Returns the sum of the
 * stored row. */
#define ht_prepare_quads HT_KERNEL(prepare_quads)
int32_t ht_prepare_quads(const uint8_t *row, int64_t k, uint8_t flip, int is_signed, int as_bytes, uint8_t *dst);

#endif
