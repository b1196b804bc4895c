/* The register-blocked core of matrix multiplication, shared by gemm.c and conv.c.
 *
 * A tile is C[m][n] = sum over k of A[m][k] * B[k][n] for m <= HT_TILE_ROWS and n <= HT_TILE_PANELS * HT_PANEL. A is
 * read in place with any two strides (a row-major or transposed matrix, or a packed block). Each of its elements is
 * broadcast to a vector and multiplied by B's vectors, which is why B should be packed.
 *
 * Packed B: panels of HT_PANEL columns, each k x HT_PANEL contiguous, the last panel padded with zeros. The layout is
 * the same for every instruction set, so that packed constants are portable. The micro-kernel takes a stride between
 * rows and between panels, so it also accepts a plain row-major B (k stride ldb, panel stride HT_PANEL).
 */
#ifndef HETERO_GEMM_MICRO_H
#define HETERO_GEMM_MICRO_H

#include "vec.h"

#define HT_BLOCK_N 512   /* columns of an im2col block: with HT_BLOCK_K rows at most 512 kB, within the L2 cache */
#define HT_LONG_K 768    /* a block of k in ht_gemm_rows: few partial sums of C, and a tile of A takes 24 kB */

/* Accumulators fill the register file: 24 of 32, 12 of 16. With AVX-512 the shape matters too: Ice Lake does hardly more
 * than one load of 64 bytes or broadcast to them per cycle, and two multiply-adds. 8 x 3 loads 11 vectors for 24
 * multiply-adds, 12 x 2 would load 14. */
#if defined(__AVX512F__)
#define HT_TILE_ROWS 8
#define HT_TILE_PANELS 3
#define HT_BLOCK_K 128 /* a block of k: a tile's panels take 24 kB, half of the L1 cache, or 16 kB */
#define HT_EACH_HEIGHT(X) HT_HEIGHTS_8(X)
#define HT_EACH_PANELS(X, rows) HT_PANELS_3(X, rows)
#define HT_TILE_ENTRY(prefix, rows) {HT_ENTRIES_3(prefix, rows)},
#elif defined(__AVX2__) || defined(__aarch64__)
#define HT_TILE_ROWS 6
#define HT_TILE_PANELS 1
#define HT_BLOCK_K 128 /* a panel takes 8 kB of an L1 cache of 32 kB, which two threads may share */
#define HT_EACH_HEIGHT(X) HT_HEIGHTS_6(X)
#define HT_EACH_PANELS(X, rows) HT_PANELS_1(X, rows)
#define HT_TILE_ENTRY(prefix, rows) {HT_ENTRIES_1(prefix, rows)},
#else
#define HT_TILE_ROWS 3
#define HT_TILE_PANELS 1
#define HT_BLOCK_K 256
#define HT_EACH_HEIGHT(X) HT_HEIGHTS_3(X)
#define HT_EACH_PANELS(X, rows) HT_PANELS_1(X, rows)
#define HT_TILE_ENTRY(prefix, rows) {HT_ENTRIES_1(prefix, rows)},
#endif

/* Does ht_gemm_block compute tiles of 4 or 8 rows and 3 vectors if A is packed? See gemm_micro.c. */
#if defined(__AVX2__)
#define HT_QUADS 1
#else
#define HT_QUADS 0
#endif

/* X(rows) for every height of a tile up to a number. X(rows, panels) for every width of a tile of that height. The
 * functions prefix##rows x panels of that height. */
#define HT_HEIGHTS_3(X) X(1) X(2) X(3)
#define HT_HEIGHTS_6(X) HT_HEIGHTS_3(X) X(4) X(5) X(6)
#define HT_HEIGHTS_8(X) HT_HEIGHTS_6(X) X(7) X(8)
#define HT_HEIGHTS_12(X) HT_HEIGHTS_8(X) X(9) X(10) X(11) X(12)
#define HT_PANELS_1(X, rows) X(rows, 1)
#define HT_PANELS_2(X, rows) HT_PANELS_1(X, rows) X(rows, 2)
#define HT_PANELS_3(X, rows) HT_PANELS_2(X, rows) X(rows, 3)
#define HT_ENTRIES_1(prefix, rows) prefix##rows##x1
#define HT_ENTRIES_2(prefix, rows) HT_ENTRIES_1(prefix, rows), prefix##rows##x2
#define HT_ENTRIES_3(prefix, rows) HT_ENTRIES_2(prefix, rows), prefix##rows##x3

/* How many of `left` columns come next, if at most `most` whole tiles' columns fit: tiles of two and two panels rather than
 * three and one, because a tile of one panel loads almost as much for a third of the multiply-adds. */
HT_INLINE int64_t ht_next_columns(int64_t left, int64_t most)
{
    HT_ASSERT(left > 0 && most % (HT_TILE_PANELS * HT_PANEL) == 0);
    const int one_panel_remains = HT_TILE_PANELS == 3 && left > most && left <= most + HT_PANEL;
    return one_panel_remains ? most - HT_PANEL : ht_min64(left, most);
}

/* Applied to each finished sum s, in this order: s * alpha, + beta * bias, + addend, max(low, .), min(high, .). NaN is
 * kept. */
typedef struct {
    const float *bias;          /* NULL: none */
    int64_t bias_row, bias_col; /* strides; bias_col is 0 or 1 */
    const float *addend;        /* NULL: none; row-major with the stride below */
    int64_t addend_row;
    float alpha, beta, low, high;
} ht_epilogue;

/* From k to k + 1, in floats. */
typedef struct {
    int64_t a, b;
} ht_step;

#define HT_MANY_STEPS 16 /* a loop over so many steps is worth its own instructions */

/* Repeats steps until there are at least HT_MANY_STEPS, and returns their number. `steps` has room for HT_MANY_STEPS - 1
 * more. */
HT_INLINE int64_t ht_repeat_steps(ht_step *steps, int64_t num)
{
    const int64_t repeated = num > 0 && num < HT_MANY_STEPS ? ht_ceil_div(HT_MANY_STEPS, num) * num : num;
    for (int64_t i = num; i < repeated; i++)
        steps[i] = steps[i - num];
    return repeated;
}

typedef struct {
    const float *a;
    int64_t a_row, a_k;         /* a_k, b_k: ht_tile_fns only */
    const float *b;
    int64_t b_k, b_panel;
    const ht_step *steps;       /* ht_stepped_tile_fns only: repeated until k is reached */
    int64_t num_steps;
    float *c;
    int64_t c_row;
    int64_t k, columns;
    int accumulate;             /* add to what C holds */
    int cold;                   /* ht_gemm_rows only: B was not prefetched */
    const float *next;          /* prefetched into the L2 cache meanwhile, one line per k */
    int64_t next_step;          /* HT_PANEL, or 0: no prefetching (then next is any address) */
    int sparse;                 /* one line for several k instead: set by ht_gemm_rows */
    int64_t next_second, next_third; /* second > 0: lines at these distances from `next`, too */
    const ht_epilogue *epilogue; /* NULL: store the bare sums */
    int64_t row, column;         /* of the tile's first element in the matrices of the epilogue */
} ht_tile;

typedef void (*ht_tile_fn)(const ht_tile *);

/* [rows - 1][panels - 1] */
#define ht_tile_fns HT_SHARED(tile_fns)
extern const ht_tile_fn ht_tile_fns[HT_TILE_ROWS][HT_TILE_PANELS];
#define ht_stepped_tile_fns HT_SHARED(stepped_tile_fns)
extern const ht_tile_fn ht_stepped_tile_fns[HT_TILE_ROWS][HT_TILE_PANELS];

/* C = A x B over one block of k. Rows are split into tiles of nearly equal height, because a tile of one or two rows
 * cannot hide the latency of its multiply-adds. `origin` describes row 0, column 0.
 * next_step > 0: B's panels come from memory, so each is prefetched while the one before is in use; `next` is the
 * address to prefetch after the last, or NULL.
 * a_panel > 0: A is packed too, like a B that is A's transpose: HT_PANEL rows (a_row = 1, a_k = HT_PANEL) every
 * a_panel. With next_step == 0, `next` is then the panel of A that is used after the last, or NULL. */
#define ht_gemm_block HT_SHARED(gemm_block)
void ht_gemm_block(const ht_tile *origin, int64_t a_panel, int64_t rows, int64_t columns);

/* The same for packed A and a row-major B, which is packed into `packed` (k * HT_PANEL floats for each panel) while the
 * first rows of A are multiplied by it. Reads no element after the last of b. */
#define ht_gemm_packing HT_SHARED(gemm_packing)
void ht_gemm_packing(const ht_tile *origin, const float *b, int64_t ldb, float *packed, int64_t a_panel, int64_t rows,
                     int64_t columns);

/* ht_gemm_block for a block of B in (or on its way to) the L2 cache, and k up to HT_LONG_K. With tiles of several panels, a
 * tile of rows of A takes all panels of B in turn; with tiles of one panel, some tiles of rows take each panel in turn.
 * next_step > 0: `next` is the start of the next block of B (with the same b_panel); next_columns of it are prefetched. */
#define ht_gemm_rows HT_SHARED(gemm_rows)
void ht_gemm_rows(const ht_tile *origin, int64_t rows, int64_t columns, int64_t next_columns);

/* dst: panels of B[k][n] (row stride ldb), or with `trans` of the transpose of a B given as [n][k]. Each panel occupies
 * panel_k * HT_PANEL floats, of which k * HT_PANEL are written. b may be unaligned. */
#define ht_pack_panels HT_SHARED(pack_panels)
void ht_pack_panels(const float *b, int64_t ldb, int trans, int64_t k, int64_t n, float *dst, int64_t panel_k);

#endif
