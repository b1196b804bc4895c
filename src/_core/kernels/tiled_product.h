/* Products of float32 on the tile registers of AMX, which multiply bfloat16: tiled_product.c. */
#ifndef HETERO_TILED_PRODUCT_H
#define HETERO_TILED_PRODUCT_H

#include "gemm_micro.h"
#include "tiles.h"

#define HT_SPLIT_COST 0.45                /* of a multiply-add as products of bfloat16, in those of float32 */
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
    const int64_t steps = ht_ceil_div(k, HT_SPLIT_STEP), blocks = ht_ceil_div(steps, HT_SPLIT_K / HT_SPLIT_STEP);
    return ht_ceil_div(steps, ht_max64(1, blocks)) * HT_SPLIT_STEP;
}

/* C[rows][columns] = A x B, or C += A x B, over one block of k <= HT_SPLIT_K. epilogue: of row 0, column 0, or NULL. rows:
 * at most HT_TILED_MOST_ROWS. Rows of A that cannot be split are left out: plain[i] tells whether group i of rows is.
 * Returns whether there is one. scratch: ht_scratch_split(held, k_step) bytes, aligned to HT_ALIGNMENT, where k_step is k
 * rounded up to a multiple of HT_SPLIT_STEP and `held`, a multiple of HT_TILED_GROUP, is how many rows or columns may be kept. */
typedef struct {
    ht_lanes a, b;
    int64_t rows, columns, k, held;
    float *c;
    int64_t c_row;
    int accumulate;
    const ht_epilogue *epilogue;
    void *scratch;
} ht_tiled;

#define ht_tiled_multiply HT_KERNEL(tiled_multiply)
int ht_tiled_multiply(const ht_tiled *t, uint8_t plain[HT_TILED_MOST_ROWS / HT_TILED_GROUP]);

#endif
