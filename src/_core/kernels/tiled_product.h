/* Products of float32 on the tile registers of AMX, which multiply bfloat16: tiled_product.c. */
#ifndef HETERO_TILED_PRODUCT_H
#define HETERO_TILED_PRODUCT_H

#include "gemm_micro.h"
#include "tiles.h"

#define HT_TILED_K HT_SPLIT_K             /* terms of a block, at most */
#define HT_TILED_GROUP 32                 /* rows or columns that are converted and multiplied together: two tiles */
#define HT_TILED_MOST_ROWS (128 * HT_TILED_GROUP)

/* An operand: element (i, k), of row i of A or column i of B, is data[i / 16 * panel + i % 16 * lane + k * step].
 * lane or step is 1. Only elements that exist are read. */
typedef struct {
    const float *data;
    int64_t panel, lane, step;
} ht_lanes;

HT_INLINE ht_lanes ht_lanes_from(const ht_lanes *x, int64_t i, int64_t k)
{
    HT_ASSERT(i % HT_PANEL == 0);
    return (ht_lanes){x->data + i / HT_PANEL * x->panel + k * x->step, x->panel, x->lane, x->step};
}

/* The length of the blocks of k. */
HT_INLINE int64_t ht_tiled_k_step(int64_t k)
{
    const int64_t steps = ht_ceil_div(k, HT_SPLIT_STEP), blocks = ht_ceil_div(steps, HT_TILED_K / HT_SPLIT_STEP);
    return ht_ceil_div(steps, ht_max64(1, blocks)) * HT_SPLIT_STEP;
}

/* The converted block of B, and memory of the thread. */
typedef struct {
    uint8_t *columns, *rows; /* B's columns; a group of rows of A */
    float *sums;
    int64_t k;               /* terms of this block */
    uint8_t plain[HT_SPLIT_COLUMNS / HT_TILED_GROUP]; /* groups of columns that are kept as panels of float32 */
} ht_tiled;

/* scratch: ht_scratch_split(columns, k) bytes, with k rounded up to a multiple of HT_SPLIT_STEP, aligned to HT_ALIGNMENT. */
HT_INLINE ht_tiled ht_tiled_begin(int64_t columns, int64_t k, void *scratch)
{
    const int64_t group = ht_ceil_div(k, HT_SPLIT_STEP) * HT_SPLIT_STEP * HT_TILED_GROUP * HT_SPLIT_BYTES;
    ht_tiled t = {.columns = (uint8_t *)scratch, .k = k};
    t.rows = t.columns + ht_ceil_div(columns, HT_TILED_GROUP) * group;
    t.sums = (float *)(void *)(t.rows + group);
    return t;
}

/* Converts columns [0, columns) of b, which become columns `first` and so on of the block; first: a multiple of
 * HT_TILED_GROUP. */
#define ht_tiled_convert HT_KERNEL(tiled_convert)
void ht_tiled_convert(ht_tiled *t, const ht_lanes *b, int64_t columns, int64_t first);

/* C[rows][columns] = A x B, or C += A x B, over the block's k. epilogue: of row 0, column 0, or NULL. rows: at most
 * HT_TILED_MOST_ROWS. Rows of A that cannot be split are left out: plain[i] tells whether group i of rows is. Returns
 * whether there is one. */
#define ht_tiled_multiply HT_KERNEL(tiled_multiply)
int ht_tiled_multiply(const ht_tiled *t, const ht_lanes *a, int64_t rows, int64_t columns, float *c, int64_t c_row,
                      int accumulate, const ht_epilogue *epilogue, uint8_t plain[HT_TILED_MOST_ROWS / HT_TILED_GROUP]);

#endif
