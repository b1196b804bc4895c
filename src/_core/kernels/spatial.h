/* What convolution and pooling share: windows over up to three spatial axes.
 *
 * Tensors of rank 3 to 5 are seen as [n][c][3 axes], missing leading axes of length 1. Parameters come in triples in
 * the same way: kernel, strides, pads before, dilations (and for pooling pads after). */
#ifndef HETERO_SPATIAL_H
#define HETERO_SPATIAL_H

#include "vec.h"

typedef struct {
    int64_t n, c, in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
    int64_t in_size, out_size; /* elements per channel */
} ht_window;

/* Fill everything but `c` and the kernel's triples; 0 if the ranks do not fit. */
HT_INLINE int ht_window_shapes(ht_window *w, const ht_tensor *x, const ht_tensor *y)
{
    const int rank = x->ndim - 2;
    if (rank < 1 || rank > 3 || y->ndim != x->ndim)
        return 0;
    w->n = x->dims[0];
    w->c = x->dims[1];
    w->in_size = w->out_size = 1;
    for (int i = 0; i < 3; i++) {
        const int axis = 2 + rank - 3 + i;
        w->in[i] = axis < 2 ? 1 : x->dims[axis];
        w->out[i] = axis < 2 ? 1 : y->dims[axis];
        w->in_size *= w->in[i];
        w->out_size *= w->out[i];
    }
    return 1;
}

/* The output positions o in [*first, *last) for which o * stride + offset lies in [0, size). */
HT_INLINE void ht_valid_range(int64_t offset, int64_t stride, int64_t size, int64_t outputs, int64_t *first,
                              int64_t *last)
{
    const int64_t low = offset >= 0 ? 0 : ht_ceil_div(-offset, stride);
    const int64_t high = size - offset <= 0 ? 0 : ht_ceil_div(size - offset, stride);
    *first = ht_min64(low, outputs);
    *last = ht_max64(*first, ht_min64(high, outputs));
}

#endif
