/* Products of float32 on the tile registers of AMX, which multiply bfloat16: tiled_product.c. */
#ifndef HETERO_TILED_PRODUCT_H
#define HETERO_TILED_PRODUCT_H

#include "gemm_micro.h"
#include "layouts.h"
#include "tiles.h"

#define HT_TILED_MOST_ROWS (128 * HT_TILED_GROUP)

/* An operand: element (i, k), of row i of A or column i of B, is data[i / 16 * panel + i % 16 * lane + k * step].
 * lane or step is 1. Only elements that exist are read. If data is NULL, the operand is converted: from ht_tiled_pack. */
typedef struct {
    const float *data;
    int64_t panel, lane, step;
    const float *parts;
    int64_t parts_group; /* floats of a group */
} ht_lanes;

/* The operand from element (i, k) on. Of a converted one, both are multiples of 32. */
HT_INLINE ht_lanes ht_lanes_from(const ht_lanes *x, int64_t i, int64_t k)
{
    ht_lanes from = *x;
    if (x->data) {
        HT_ASSERT(i % HT_PANEL == 0);
        from.data += i / HT_PANEL * x->panel + k * x->step;
    } else {
        HT_ASSERT(i % HT_TILED_GROUP == 0 && k % HT_TILED_STEP == 0);
        from.parts += i / HT_TILED_GROUP * x->parts_group + ht_parts_floats(k, HT_TILED_GROUP);
    }
    return from;
}

/* A converted operand of all k. */
HT_INLINE ht_lanes ht_lanes_of_parts(const float *parts, int64_t k)
{
    return (ht_lanes){.parts = parts, .parts_group = ht_parts_floats(k, HT_TILED_GROUP)};
}

/* The length of the blocks of k, which are nearly equal; `most` is a multiple of HT_TILED_STEP. */
HT_INLINE int64_t ht_tiled_k_step(int64_t k, int64_t most)
{
    const int64_t steps = ht_ceil_div(k, HT_TILED_STEP), blocks = ht_ceil_div(steps, most / HT_TILED_STEP);
    return ht_ceil_div(steps, ht_max64(1, blocks)) * HT_TILED_STEP;
}

#define HT_TILED_MOST_HELD (HT_TILED_HELD / HT_TILED_GROUP) /* groups */

/* One operand over a block of k, converted: rows of A or columns of B. */
typedef struct {
    ht_lanes x;
    int64_t lanes, k;
    int are_rows;
    uint8_t splits[HT_TILED_MOST_HELD]; /* which groups could be split */
    const uint8_t *groups;
    int64_t group_bytes;                /* from a group to the next */
    uint8_t *passing;                   /* memory for two groups of the other operand */
    float *spare;                       /* memory for a group of float32, if one of the operands is converted already */
    float *sums;                        /* of two products of groups */
} ht_tiled;

/* Converts an operand, unless it is converted already. lanes: at most HT_TILED_HELD; k: at most HT_TILED_MOST_K. scratch:
 * HT_SCRATCH_TILED(lanes, k) bytes, with both rounded up to multiples of 32, aligned to HT_ALIGNMENT. */
#define ht_tiled_hold HT_KERNEL(tiled_hold)
void ht_tiled_hold(ht_tiled *t, const ht_lanes *x, int64_t lanes, int64_t k, int are_rows, void *scratch);

/* Of the held operand, `lanes` rows or columns from `first` on, a multiple of HT_TILED_GROUP. */
HT_INLINE ht_tiled ht_tiled_some(const ht_tiled *t, int64_t first, int64_t lanes)
{
    ht_tiled some = *t;
    const int64_t groups = first / HT_TILED_GROUP;
    HT_ASSERT(first % HT_TILED_GROUP == 0 && lanes > 0 && first + lanes <= t->lanes);
    some.x = ht_lanes_from(&t->x, first, 0);
    some.lanes = lanes;
    for (int64_t g = 0; groups > 0 && g < ht_ceil_div(lanes, HT_TILED_GROUP); g++)
        some.splits[g] = t->splits[groups + g];
    some.groups += groups * t->group_bytes;
    return some;
}

/* C = A x B, or C += A x B, where `other` is the operand that is not held. epilogue: of C's first row and column, or NULL.
 * At most HT_TILED_MOST_ROWS rows. Rows of A that cannot be split are left out: plain[i] tells whether group i of rows is.
 * Returns whether there is one. */
#define ht_tiled_pass HT_KERNEL(tiled_pass)
int ht_tiled_pass(const ht_tiled *t, const ht_lanes *other, int64_t lanes, float *c, int64_t c_row, int accumulate,
                  const ht_epilogue *epilogue, uint8_t plain[HT_TILED_MOST_ROWS / HT_TILED_GROUP]);

/* Multiplies up to 32 rows of A or columns of B by their `scale`, unless that is NULL, and converts them, all their k, to
 * ht_parts_floats(k, 32) floats at `to`. Returns 0 if a product is neither zero nor of a magnitude between 2^-64 and 2^50.
 * All others can be split, their parts are never denormal, and the sum of the parts is the number itself. */
#define ht_tiled_pack HT_KERNEL(tiled_pack)
int ht_tiled_pack(const ht_lanes *x, int64_t lanes, int64_t k, int are_rows, const float *scale, float *to);

/* The elements of a converted operand as panels, which are k * HT_PANEL floats apart. */
#define ht_tiled_unpack HT_KERNEL(tiled_unpack)
void ht_tiled_unpack(const ht_lanes *x, int64_t lanes, int64_t k, int are_rows, float *panels);

#endif
