/* Tiles of products of 8-bit integers: see integer_micro.h.
 *
 * The blocking is that of gemm_micro.c: a tile's accumulators stay in registers while A's quads are broadcast against
 * B's vectors. Cost: m * n * k / 4 lanes of products with VNNI or a small operand, three quarters of that with tiny filters,
 * m * n * k / 2 without.
 */
#include "integer_micro.h"
#include "integer_vec.h"

#define VECTORS (HT_PANEL / VF_LANES)

enum { FEW_ROWS = 3 };

/* One pointer for every three rows, as in gemm_micro.c. */
#define A_AT(i) (((i) < 3 ? a0 : (i) < 6 ? a3 : (i) < 9 ? a6 : a9) + ((i) % 3) * a_row)

/* as_bytes: whether quads of A are bytes, which need VNNI or a small operand. */
HT_INLINE void tile_body(const ht_integer_tile *t, const int rows, const int panels, const int windows, const int as_bytes)
{
    const int64_t a_quad = as_bytes ? HT_QUAD : HT_A_QUAD;
    const int width = panels * VECTORS;
    const int64_t a_row = t->a_row, b_panel = t->b_panel;
    const uint8_t *a0 = t->a, *a3 = a0 + (rows > 3 ? 3 * a_row : 0), *a6 = a0 + (rows > 6 ? 6 * a_row : 0);
    const uint8_t *a9 = a0 + (rows > 9 ? 9 * a_row : 0);
    const uint8_t *b = t->b;
    const int64_t *steps = t->steps;
    vi acc[HT_INTEGER_ROWS][HT_INTEGER_PANELS * VECTORS];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < width; j++)
            acc[i][j] = t->start ? vi_set1(t->start[i])
                                 : load((const uint8_t *)(t->c + i * HT_INTEGER_WIDTH + j * VF_LANES));
    for (int64_t left = t->quads; left > 0; left--) {
        const uint8_t *quads = windows ? b + *steps++ : b;
        vi bv[HT_INTEGER_PANELS * VECTORS];
#if HT_VNNI || HT_SMALL_TILES
        if (as_bytes) {
#pragma GCC unroll 8
            for (int j = 0; j < width; j++)
                bv[j] = load(quads + j / VECTORS * b_panel + j % VECTORS * VECTOR_BYTES);
#pragma GCC unroll 12
            for (int i = 0; i < rows; i++) {
                const vi av = everywhere(A_AT(i));
#pragma GCC unroll 8
                for (int j = 0; j < width; j++)
                    acc[i][j] = windows ? multiply_quads(acc[i][j], bv[j], av) : multiply_quads(acc[i][j], av, bv[j]);
            }
        }
#endif
#if !HT_VNNI
#pragma GCC unroll 2
        for (int half = 0; !as_bytes && half < 2; half++) {
#pragma GCC unroll 8
            for (int j = 0; j < width; j++)
                bv[j] = pairs_of(load(quads + j / VECTORS * b_panel + j % VECTORS * VECTOR_BYTES), half, !windows);
#pragma GCC unroll 12
            for (int i = 0; i < rows; i++) {
                const vi av = everywhere(A_AT(i) + HT_QUAD * half);
#pragma GCC unroll 8
                for (int j = 0; j < width; j++)
                    acc[i][j] = add_products(acc[i][j], av, bv[j]);
            }
        }
#endif
        a0 += a_quad;
        a3 += a_quad;
        a6 += a_quad;
        a9 += a_quad;
        if (!windows)
            b += HT_PANEL_BYTES;
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < width; j++)
            vf_store((float *)(void *)(t->c + i * HT_INTEGER_WIDTH + j * VF_LANES), vi_as_float(acc[i][j]));
}

/* Products of few rows. Each vector has several sums, because one after the other would wait for the latency of the
 * instruction. */
HT_INLINE void few_rows_body(const ht_integer_tile *t, const int rows, const int panels)
{
#if HT_VNNI
    const int width = panels * VECTORS, chains = rows * width >= 8 ? 1 : rows * width >= 4 ? 2 : 4;
    const int64_t a_row = t->a_row, b_panel = t->b_panel;
    const uint8_t *a = t->a, *b = t->b;
    vi acc[4][FEW_ROWS][HT_INTEGER_PANELS * VECTORS];
#pragma GCC unroll 4
    for (int u = 0; u < chains; u++)
#pragma GCC unroll 3
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
            for (int j = 0; j < width; j++)
                acc[u][i][j] = u > 0      ? vi_set1(0)
                               : t->start ? vi_set1(t->start[i])
                                          : load((const uint8_t *)(t->c + i * HT_INTEGER_WIDTH + j * VF_LANES));
    int64_t left = t->quads;
    for (; left >= chains; left -= chains, a += chains * HT_A_QUAD, b += chains * HT_PANEL_BYTES)
#pragma GCC unroll 4
        for (int u = 0; u < chains; u++)
#pragma GCC unroll 8
            for (int j = 0; j < width; j++) {
                const vi bv = load(b + u * HT_PANEL_BYTES + j / VECTORS * b_panel + j % VECTORS * VECTOR_BYTES);
#pragma GCC unroll 3
                for (int i = 0; i < rows; i++)
                    acc[u][i][j] = multiply_quads(acc[u][i][j], everywhere(a + i * a_row + u * HT_A_QUAD), bv);
            }
    for (; left > 0; left--, a += HT_A_QUAD, b += HT_PANEL_BYTES)
#pragma GCC unroll 8
        for (int j = 0; j < width; j++) {
            const vi bv = load(b + j / VECTORS * b_panel + j % VECTORS * VECTOR_BYTES);
#pragma GCC unroll 3
            for (int i = 0; i < rows; i++)
                acc[0][i][j] = multiply_quads(acc[0][i][j], everywhere(a + i * a_row), bv);
        }
#pragma GCC unroll 3
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < width; j++) {
#pragma GCC unroll 3
            for (int u = 1; u < chains; u++)
                acc[0][i][j] = vi_add(acc[0][i][j], acc[u][i][j]);
            vf_store((float *)(void *)(t->c + i * HT_INTEGER_WIDTH + j * VF_LANES), vi_as_float(acc[0][i][j]));
        }
#else
    tile_body(t, rows, panels, 0, 0); /* its additions have a latency of one cycle */
#endif
}

#define PRODUCT(rows, panels)                                                                                         \
    static void product_##rows##x##panels(const ht_integer_tile *t)                                                   \
    {                                                                                                                 \
        if ((rows) <= FEW_ROWS)                                                                                       \
            few_rows_body(t, (rows) <= FEW_ROWS ? (rows) : 1, panels);                                                \
        else                                                                                                          \
            tile_body(t, rows, panels, 0, HT_VNNI);                                                                   \
    }                                                                                                                 \
    static void window_##rows##x##panels(const ht_integer_tile *t) { tile_body(t, rows, panels, 1, HT_VNNI); }
#define PRODUCTS(rows) HT_EACH_INTEGER_PANELS(PRODUCT, rows)
#define PRODUCT_ENTRY(rows) HT_INTEGER_ENTRY(product_, rows)
#define WINDOW_ENTRY(rows) HT_INTEGER_ENTRY(window_, rows)

HT_EACH_INTEGER_HEIGHT(PRODUCTS)

const ht_integer_tile_fn ht_product_tiles[HT_INTEGER_ROWS][HT_INTEGER_PANELS] = {HT_EACH_INTEGER_HEIGHT(PRODUCT_ENTRY)};
const ht_integer_tile_fn ht_window_tiles[HT_INTEGER_ROWS][HT_INTEGER_PANELS] = {HT_EACH_INTEGER_HEIGHT(WINDOW_ENTRY)};

#if HT_SMALL_TILES
#define SMALL(rows, panels)                                                                                           \
    static void small_product_##rows##x##panels(const ht_integer_tile *t) { tile_body(t, rows, panels, 0, 1); }       \
    static void small_window_##rows##x##panels(const ht_integer_tile *t) { tile_body(t, rows, panels, 1, 1); }
#define SMALLS(rows) HT_EACH_INTEGER_PANELS(SMALL, rows)
#define SMALL_PRODUCT_ENTRY(rows) HT_INTEGER_ENTRY(small_product_, rows)
#define SMALL_WINDOW_ENTRY(rows) HT_INTEGER_ENTRY(small_window_, rows)

HT_EACH_INTEGER_HEIGHT(SMALLS)

const ht_integer_tile_fn ht_small_product_tiles[HT_INTEGER_ROWS][HT_INTEGER_PANELS] = {
    HT_EACH_INTEGER_HEIGHT(SMALL_PRODUCT_ENTRY)};
const ht_integer_tile_fn ht_small_window_tiles[HT_INTEGER_ROWS][HT_INTEGER_PANELS] = {
    HT_EACH_INTEGER_HEIGHT(SMALL_WINDOW_ENTRY)};
#endif

#if HT_TINY_TILES
/* The quads of A lie in memory as vectors, because the instructions that broadcast them would be a sixth of all. */
HT_INLINE void expanded_body(const ht_integer_tile *t, const int rows, const int tiny)
{
    enum { WIDTH = HT_INTEGER_WIDTH / VF_LANES };
    const vi *a = (const vi *)(const void *)t->a;
    vi acc[HT_TINY_ROWS][WIDTH];
#pragma GCC unroll 5
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < WIDTH; j++)
            acc[i][j] = t->start ? vi_set1(t->start[i]) : load((const uint8_t *)(t->c + i * HT_INTEGER_WIDTH + j * VF_LANES));
    for (int64_t q = 0; q < t->quads; q += 2, a += 2 * rows) {
        const uint8_t *even = t->b + t->steps[q], *odd = t->b + t->steps[q + 1];
#pragma GCC unroll 2
        for (int j = 0; j < WIDTH; j++) {
            const vi b0 = load(even + j * VECTOR_BYTES), b1 = load(odd + j * VECTOR_BYTES);
#pragma GCC unroll 5
            for (int i = 0; i < rows; i++)
                acc[i][j] = tiny ? multiply_two_quads(acc[i][j], b0, b1, a + 2 * i)
                                 : multiply_expanded(multiply_expanded(acc[i][j], b0, a + 2 * i), b1, a + 2 * i + 1);
        }
    }
#pragma GCC unroll 5
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < WIDTH; j++)
            vf_store((float *)(void *)(t->c + i * HT_INTEGER_WIDTH + j * VF_LANES), vi_as_float(acc[i][j]));
}

#define EXPANDED(rows)                                                                                                \
    static void tiny_window_##rows(const ht_integer_tile *t) { expanded_body(t, rows, 1); }                           \
    static void expanded_window_##rows(const ht_integer_tile *t) { expanded_body(t, rows, 0); }
EXPANDED(1) EXPANDED(2) EXPANDED(3) EXPANDED(4) EXPANDED(5)

const ht_integer_tile_fn ht_expanded_window_tiles[2][HT_TINY_ROWS] = {
    {expanded_window_1, expanded_window_2, expanded_window_3, expanded_window_4, expanded_window_5},
    {tiny_window_1, tiny_window_2, tiny_window_3, tiny_window_4, tiny_window_5}};
#endif

int32_t ht_prepare_quads(const uint8_t *row, int64_t k, uint8_t flip, int is_signed, int as_bytes, uint8_t *dst)
{
    uint32_t sum = 0; /* wraps */
    if (is_signed)
        for (int64_t i = 0; i < k; i++)
            sum += (uint32_t)(int8_t)(row[i] ^ flip);
    else
        for (int64_t i = 0; i < k; i++)
            sum += (uint8_t)(row[i] ^ flip);
    if (HT_VNNI || as_bytes) {
        for (int64_t i = 0; i < k; i++)
            dst[i] = row[i] ^ flip;
        for (int64_t i = k; i % HT_QUAD; i++)
            dst[i] = 0;
        return (int32_t)sum;
    }
    const uint32_t flips = flip * 0x01010101u;
    for (int64_t q = 0; q < ht_quads(k); q++) {
        uint32_t quad = flips; /* bytes past the end: zeros after the flip */
        if (HT_LIKELY(HT_QUAD * q + HT_QUAD <= k))
            memcpy(&quad, row + HT_QUAD * q, HT_QUAD);
        else
            memcpy(&quad, row + HT_QUAD * q, (size_t)(k % HT_QUAD)); /* little-endian, like all variants */
        quad ^= flips;
        uint32_t pairs[2] = {quad & 0x00ff00ffu, quad >> 8 & 0x00ff00ffu};
        for (int half = 0; is_signed && half < 2; half++) { /* the highest bit of a byte fills the 8 above it */
            const uint32_t negative = pairs[half] & 0x00800080u;
            pairs[half] |= (negative << 9) - (negative << 1);
        }
        memcpy(dst + HT_A_QUAD * q, pairs, sizeof pairs);
    }
    return (int32_t)sum;
}
