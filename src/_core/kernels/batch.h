/* A batch of matrices at any strides in an operand. */
#ifndef HETERO_BATCH_H
#define HETERO_BATCH_H

#include "vec.h"

typedef struct {
    int64_t ndim;
    const int64_t *dims, *a_strides, *b_strides; /* in elements of the operand, 0 broadcasts */
} ht_batch;

HT_INLINE int64_t ht_batch_size(const ht_batch *batch)
{
    int64_t size = 1;
    for (int64_t d = 0; d < batch->ndim; d++)
        size *= batch->dims[d];
    return size;
}

/* Do all matrices of `elements` elements lie inside an operand of `size` elements? */
HT_INLINE int ht_batch_fits(const ht_batch *batch, const int64_t *strides, int64_t elements, int64_t size)
{
    int64_t last = 0;
    for (int64_t d = 0; d < batch->ndim; d++) {
        if (batch->dims[d] < 1 || strides[d] < 0)
            return 0;
        last += (batch->dims[d] - 1) * strides[d];
    }
    return last + elements <= size;
}

/* The offset of matrix i. */
HT_INLINE int64_t ht_batch_offset(const ht_batch *batch, const int64_t *strides, int64_t i)
{
    int64_t at = 0;
    for (int64_t d = batch->ndim - 1; d >= 0; d--) {
        at += i % batch->dims[d] * strides[d];
        i /= batch->dims[d];
    }
    return at;
}

#endif
