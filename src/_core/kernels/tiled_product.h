/* Products of float32 on the tile registers of AMX, which multiply bfloat16: tiled_product.c. */
#ifndef HETERO_TILED_PRODUCT_H
#define HETERO_TILED_PRODUCT_H

#include "gemm_micro.h"
#include "tiles.h"

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

#define HT_TILED_MOST_HELD (HT_SPLIT_HELD / HT_TILED_GROUP) /* groups */

/* One operand over a block of k, converted: rows of A or columns of B. */
typedef struct {
    ht_lanes x;
    int64_t lanes, k;
    int are_rows;
    uint8_t splits[HT_TILED_MOST_HELD]; /* which groups could be split */
    uint8_t *groups, *passing;          /* memory of these, and of two groups of the other operand */
    float *sums;                        /* of two products of groups */
} ht_tiled;

/* Converts an operand. lanes: at most HT_SPLIT_HELD; k: at most HT_SPLIT_K. scratch: HT_SCRATCH_SPLIT(lanes, k) bytes, with
 * both rounded up to multiples of 32, aligned to HT_ALIGNMENT. */
#define ht_tiled_hold HT_KERNEL(tiled_hold)
void ht_tiled_hold(ht_tiled *t, const ht_lanes *x, int64_t lanes, int64_t k, int are_rows, void *scratch);

/* C = A x B, or C += A x B, where `other` is the operand that is not held. epilogue: of C's first row and column, or NULL.
 * At most HT_TILED_MOST_ROWS rows. Rows of A that cannot be split are left out: plain[i] tells whether group i of rows is.
 * Returns whether there is one. */
#define ht_tiled_pass HT_KERNEL(tiled_pass)
int ht_tiled_pass(const ht_tiled *t, const ht_lanes *other, int64_t lanes, float *c, int64_t c_row, int accumulate,
                  const ht_epilogue *epilogue, uint8_t plain[HT_TILED_MOST_ROWS / HT_TILED_GROUP]);

#endif
