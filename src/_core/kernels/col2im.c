/* col2im: sums of overlapping windows, the reverse of taking windows apart. The second half of a transposed convolution.
 *
 * y[n][c][...] = bias[c] + the sum of all columns that fall on an element: tap t of window p lies at
 * p * stride - pad + t * dilation, along each of up to three spatial axes; what falls outside y is dropped.
 * Operands: in columns[n][c][taps][windows] (float32 or float64; taps and windows row-major), bias[c] or NULL; out
 * y[n][c][...] of rank 3 to 5. ints: triples (missing leading axes: 1) taps, windows, strides, pads before, dilations.
 * Cost: one addition per element of columns, along the innermost axis. Sums run in the order of the taps.
 */
#include "spatial.h"

typedef struct {
    int64_t taps[3], windows[3], stride[3], pad[3], dilation[3], out[3];
} layout;

#define DEFINE_PLANE(T)                                                                                              \
    static void plane_##T(const layout *w, const T *column, T *y)                                                    \
    {                                                                                                                \
        const int64_t row = w->windows[2];                                                                           \
        int64_t t[3], first[3], last[3];                                                                             \
        for (t[0] = 0; t[0] < w->taps[0]; t[0]++)                                                                    \
            for (t[1] = 0; t[1] < w->taps[1]; t[1]++)                                                                \
                for (t[2] = 0; t[2] < w->taps[2]; t[2]++) {                                                          \
                    int64_t offset[3];                                                                               \
                    for (int i = 0; i < 3; i++) {                                                                    \
                        offset[i] = t[i] * w->dilation[i] - w->pad[i];                                               \
                        ht_valid_range(offset[i], w->stride[i], w->out[i], w->windows[i], &first[i], &last[i]);      \
                    }                                                                                                \
                    const int64_t n = last[2] - first[2], step = w->stride[2];                                       \
                    for (int64_t z = first[0]; n > 0 && z < last[0]; z++)                                            \
                        for (int64_t line = first[1]; line < last[1]; line++) {                                      \
                            const T *HT_RESTRICT from = column + (z * w->windows[1] + line) * row + first[2];        \
                            const int64_t at_z = z * w->stride[0] + offset[0];                                       \
                            const int64_t at_y = line * w->stride[1] + offset[1];                                    \
                            T *HT_RESTRICT to = y + (at_z * w->out[1] + at_y) * w->out[2] + first[2] * step + offset[2]; \
                            if (step == 1)                                                                           \
                                for (int64_t i = 0; i < n; i++)                                                      \
                                    to[i] += from[i];                                                                \
                            else if (step == 2)                                                                      \
                                for (int64_t i = 0; i < n; i++)                                                      \
                                    to[2 * i] += from[i];                                                            \
                            else                                                                                     \
                                for (int64_t i = 0; i < n; i++)                                                      \
                                    to[i * step] += from[i];                                                         \
                        }                                                                                            \
                    column += w->windows[0] * w->windows[1] * row;                                                   \
                }                                                                                                    \
    }                                                                                                                \
    static void planes_##T(const ht_call *call, const layout *w, int64_t n, int64_t c)                               \
    {                                                                                                                \
        const T *column = (const T *)call->in[0]->data, *bias = call->in[1] ? (const T *)call->in[1]->data : NULL;   \
        T *y = (T *)call->out[0]->data;                                                                              \
        const int64_t size = w->out[0] * w->out[1] * w->out[2];                                                      \
        const int64_t windows = w->windows[0] * w->windows[1] * w->windows[2];                                       \
        const int64_t columns = w->taps[0] * w->taps[1] * w->taps[2] * windows;                                      \
        for (int64_t plane = 0; plane < n * c; plane++, y += size, column += columns) {                              \
            const T start = bias ? bias[plane % c] : 0;                                                              \
            for (int64_t i = 0; i < size; i++)                                                                       \
                y[i] = start;                                                                                        \
            plane_##T(w, column, y);                                                                                 \
        }                                                                                                            \
    }
DEFINE_PLANE(float)
DEFINE_PLANE(double)

int HT_KERNEL(col2im)(const ht_call *call)
{
    if (call->num_in != 2 || call->num_out != 1 || call->num_ints != 15)
        return HT_ERR_OPERAND;
    const ht_tensor *columns = call->in[0], *bias = call->in[1], *y = call->out[0];
    const int rank = y->ndim - 2;
    if (rank < 1 || rank > 3 || columns->dtype != y->dtype || (bias && (bias->dtype != y->dtype || bias->size != y->dims[1])))
        return HT_ERR_OPERAND;
    layout w;
    int64_t expected = y->dims[0] * y->dims[1];
    for (int i = 0; i < 3; i++) {
        w.taps[i] = call->ints[i];
        w.windows[i] = call->ints[3 + i];
        w.stride[i] = call->ints[6 + i];
        w.pad[i] = call->ints[9 + i];
        w.dilation[i] = call->ints[12 + i];
        w.out[i] = i < 3 - rank ? 1 : y->dims[rank - 1 + i];
        if (w.taps[i] < 1 || w.windows[i] < 0 || w.stride[i] < 1 || w.dilation[i] < 1 || w.taps[i] > 1 << 30 ||
            w.stride[i] > 1 << 30 || w.dilation[i] > 1 << 30 || w.pad[i] < 0)
            return HT_ERR_OPERAND;
        expected *= w.taps[i] * w.windows[i];
    }
    if (columns->size != expected)
        return HT_ERR_OPERAND;
    if (y->dtype == HT_FLOAT32)
        planes_float(call, &w, y->dims[0], y->dims[1]);
    else if (y->dtype == HT_FLOAT64)
        planes_double(call, &w, y->dims[0], y->dims[1]);
    else
        return HT_ERR_DTYPE;
    return HT_OK;
}
