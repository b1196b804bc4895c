/* Windows over up to three spatial axes, shared by convolution and pooling.
 *
 * Tensors of rank 3 to 5 are treated as [n][c][3 axes], with missing leading axes of length 1. Parameters are triples
 * in the same way: kernel, strides, pads before, dilations (and for pooling pads after). */
#ifndef HETERO_SPATIAL_H
#define HETERO_SPATIAL_H

#include "vec.h"

typedef struct {
    int64_t n, c, in[3], out[3], kernel[3], stride[3], pad[3], dilation[3];
    int64_t in_size, out_size; /* elements per channel */
} ht_window;

/* Fills everything except `c` and the kernel's triples; returns 0 if the ranks do not fit. */
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

/* A pool's window, from in[0], out[0] and the first 12 ints: triples kernel, strides, pads before, dilations. */
HT_INLINE int ht_pool_window(const ht_call *call, ht_window *w)
{
    const ht_tensor *x = call->in[0], *y = call->out[0];
    if (x->dtype != y->dtype)
        return HT_ERR_DTYPE;
    if (call->num_ints < 12 || !ht_window_shapes(w, x, y) || y->dims[0] != w->n || y->dims[1] != w->c)
        return HT_ERR_OPERAND;
    for (int i = 0; i < 3; i++) {
        w->kernel[i] = call->ints[i];
        w->stride[i] = call->ints[3 + i];
        w->pad[i] = call->ints[6 + i];
        w->dilation[i] = call->ints[9 + i];
        if (w->kernel[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1 || w->pad[i] < 0)
            return HT_ERR_OPERAND;
    }
    return HT_OK;
}

/* The range [*first, *last) of output positions o for which o * stride + offset lies in [0, size). */
HT_INLINE void ht_valid_range(int64_t offset, int64_t stride, int64_t size, int64_t outputs, int64_t *first,
                              int64_t *last)
{
    /* Avoid the division for stride 1: it takes as long as pooling a short row. */
    const int64_t low = offset >= 0 ? 0 : HT_LIKELY(stride == 1) ? -offset : ht_ceil_div(-offset, stride);
    const int64_t high = size - offset <= 0 ? 0 : HT_LIKELY(stride == 1) ? size - offset
                                                                        : ht_ceil_div(size - offset, stride);
    *first = ht_min64(low, outputs);
    *last = ht_max64(*first, ht_min64(high, outputs));
}

/* Padded rows of an input, for kernels whose vectors run along output columns. Each row is split by column modulo the
 * stride, so that one tap of adjacent outputs is contiguous for any stride.
 * Position p of the padded row goes to dst[p % stride * phase + p / stride]; `phase` is a multiple of VF_LANES. */
typedef struct {
    int64_t phase, row;  /* floats per phase, and per row: stride * phase */
} ht_split;

HT_INLINE ht_split ht_split_for(int64_t width, int64_t stride)
{
    const int64_t phase = ht_ceil_div(ht_ceil_div(width, stride), VF_LANES) * VF_LANES;
    return (ht_split){phase, phase * stride};
}

/* The position in a split row of tap `position` of output 0. */
HT_INLINE int64_t ht_split_at(const ht_split *s, int64_t position, int64_t stride)
{
    return position % stride * s->phase + position / stride;
}

/* row[at .. at + VF_LANES), with `blank` for positions outside [0, size). */
HT_INLINE vf ht_load_inside(const float *row, int64_t size, int64_t at, vf blank)
{
    if (HT_LIKELY(at >= 0 && at + VF_LANES <= size))
        return vf_load(row + at);
    const int64_t low = ht_min64(VF_LANES, ht_max64(0, -at)), high = ht_max64(low, ht_min64(VF_LANES, size - at));
    return vf_load_or(row + at, low, high, blank);
}

HT_INLINE int64_t ht_floor_half(int64_t n) { return n >= 0 ? n / 2 : -((1 - n) / 2); }

/* A vector of each phase, from position i of the phases on; stride 2. */
HT_INLINE void ht_split_two(const ht_split *s, const float *row, int64_t size, int64_t at, vf blank, float *dst, int64_t i)
{
    const vf a = ht_load_inside(row, size, at + 2 * i, blank);
    const vf b = ht_load_inside(row, size, at + 2 * i + VF_LANES, blank);
    vf_store(dst + i, vf_even(a, b));
    vf_store(dst + s->phase + i, vf_odd(a, b));
}

/* Splits the row from column `at` on (which may lie outside [0, size)) to dst, with `outside` in the padding. */
HT_INLINE void ht_split_row(const ht_split *s, const float *row, int64_t size, int64_t at, int64_t stride, float outside,
                            float *dst)
{
    const vf blank = vf_set1(outside);
    int64_t i = 0;
    if (!row) {
        for (; i < s->row; i += VF_LANES)
            vf_store(dst + i, blank);
    } else if (stride == 1) {
        for (; i < s->row && at + i < 0; i += VF_LANES)
            vf_store(dst + i, ht_load_inside(row, size, at + i, blank));
        for (const int64_t end = ht_min64(s->row, size - at) - VF_LANES; i <= end; i += VF_LANES)
            vf_store(dst + i, vf_load(row + at + i));
        for (; i < s->row; i += VF_LANES)
            vf_store(dst + i, ht_load_inside(row, size, at + i, blank));
    } else if (stride == 2) {
        for (; i < s->phase && at + 2 * i < 0; i += VF_LANES)
            ht_split_two(s, row, size, at, blank, dst, i);
        for (const int64_t end = ht_min64(s->phase, ht_floor_half(size - at)) - VF_LANES; i <= end; i += VF_LANES) {
            const vf a = vf_load(row + at + 2 * i), b = vf_load(row + at + 2 * i + VF_LANES);
            vf_store(dst + i, vf_even(a, b));
            vf_store(dst + s->phase + i, vf_odd(a, b));
        }
        for (; i < s->phase; i += VF_LANES)
            ht_split_two(s, row, size, at, blank, dst, i);
    } else {
        for (int64_t phase = 0; phase < stride; phase++)
            for (i = 0; i < s->phase; i++) {
                const int64_t p = at + phase + i * stride;
                dst[phase * s->phase + i] = p >= 0 && p < size ? row[p] : outside;
            }
    }
}

#endif
