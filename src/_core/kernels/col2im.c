/* col2im: sums overlapping windows, the reverse of extracting windows. The second half of a transposed convolution.
 *
 * y[n][c][...] = bias[c] + the sum of all columns that fall on an element. Tap t of window p lies at p * stride - pad +
 * t * dilation, along each of up to three spatial axes; positions outside y are dropped.
 * Operands: in columns[n][c][taps][windows] (float32 or float64; taps and windows row-major), bias[c] or NULL; out
 * y[n][c][...] of rank 3 to 5. ints: triples (missing leading axes: 1) taps, windows, strides, pads before, dilations.
 * Cost: one addition per element of columns, along the innermost axis. Sums run in the order of the taps.
 */
#include "spatial.h"

typedef struct {
    int64_t taps[3], windows[3], stride[3], pad[3], dilation[3], out[3];
} layout;

/* One tap of one row: to[i * step] += from[i]. With step 2 the next tap falls in between, so pairs of taps share a loop
 * that writes a whole row and vectorizes. */
#define DEFINE_PLANE(T)                                                                                               \
    static void add_##T(const T *HT_RESTRICT from, T *HT_RESTRICT to, int64_t n, int64_t step)                        \
    {                                                                                                                 \
        if (step == 1)                                                                                                \
            HT_LONG_FOR (i, n)                                                                                        \
                to[i] += from[i];                                                                                     \
        else                                                                                                          \
            HT_LONG_FOR (i, n)                                                                                        \
                to[i * step] += from[i];                                                                              \
    }                                                                                                                 \
    static void add_pair_##T(const T *HT_RESTRICT even, const T *HT_RESTRICT odd, T *HT_RESTRICT to, int64_t n)       \
    {                                                                                                                 \
        HT_LONG_FOR (i, n) {                                                                                          \
            to[2 * i] += even[i];                                                                                     \
            to[2 * i + 1] += odd[i];                                                                                  \
        }                                                                                                             \
    }                                                                                                                 \
    /* Tap t of the innermost axis, and t + 1 if `pair`, along one row of windows. */                                 \
    static void row_##T(const layout *w, const T *from, int64_t size, int64_t t, int pair, T *to)                     \
    {                                                                                                                 \
        const int64_t step = w->stride[2], offset = t * w->dilation[2] - w->pad[2];                                   \
        int64_t first, last, first_odd, last_odd;                                                                     \
        ht_valid_range(offset, step, w->out[2], w->windows[2], &first, &last);                                        \
        if (!pair) {                                                                                                  \
            if (last > first)                                                                                         \
                add_##T(from + first, to + first * step + offset, last - first, step);                                \
            return;                                                                                                   \
        }                                                                                                             \
        const T *odd = from + size;                                                                                   \
        ht_valid_range(offset + 1, step, w->out[2], w->windows[2], &first_odd, &last_odd);                            \
        const int64_t low = ht_max64(first, first_odd), high = ht_max64(low, ht_min64(last, last_odd));               \
        for (int64_t i = first; i < ht_min64(low, last); i++)                                                         \
            to[i * 2 + offset] += from[i];                                                                            \
        for (int64_t i = first_odd; i < ht_min64(low, last_odd); i++)                                                 \
            to[i * 2 + offset + 1] += odd[i];                                                                         \
        if (high > low)                                                                                               \
            add_pair_##T(from + low, odd + low, to + low * 2 + offset, high - low);                                   \
        for (int64_t i = high; i < last; i++)                                                                         \
            to[i * 2 + offset] += from[i];                                                                            \
        for (int64_t i = high; i < last_odd; i++)                                                                     \
            to[i * 2 + offset + 1] += odd[i];                                                                         \
    }                                                                                                                 \
    static void plane_##T(const layout *w, const T *column, T *y)                                                     \
    {                                                                                                                 \
        const int64_t row = w->windows[2], size = w->windows[0] * w->windows[1] * row;                                \
        const int pairs = w->stride[2] == 2 && w->dilation[2] == 1;                                                   \
        int64_t t[3], first[2], last[2], offset[2], left = HT_PACE;                                                   \
        for (t[0] = 0; t[0] < w->taps[0]; t[0]++)                                                                     \
            for (t[1] = 0; t[1] < w->taps[1]; t[1]++) {                                                               \
                for (int i = 0; i < 2; i++) {                                                                         \
                    offset[i] = t[i] * w->dilation[i] - w->pad[i];                                                    \
                    ht_valid_range(offset[i], w->stride[i], w->out[i], w->windows[i], &first[i], &last[i]);           \
                }                                                                                                     \
                for (t[2] = 0; t[2] < w->taps[2];) {                                                                  \
                    const int pair = pairs && t[2] + 1 < w->taps[2];                                                  \
                    for (int64_t z = first[0]; z < last[0]; z++)                                                      \
                        for (int64_t line = first[1]; line < last[1]; line++) {                                       \
                            if (ht_paced_stop(&left, (1 + pair) * row))                                               \
                                return;                                                                               \
                            const int64_t at_z = z * w->stride[0] + offset[0];                                        \
                            const int64_t at_y = line * w->stride[1] + offset[1];                                     \
                            row_##T(w, column + (z * w->windows[1] + line) * row, size, t[2], pair,                   \
                                    y + (at_z * w->out[1] + at_y) * w->out[2]);                                       \
                        }                                                                                             \
                    column += (1 + pair) * size;                                                                      \
                    t[2] += 1 + pair;                                                                                 \
                }                                                                                                     \
            }                                                                                                         \
    }                                                                                                                 \
    static void planes_##T(const ht_call *call, const layout *w, int64_t begin, int64_t end)                          \
    {                                                                                                                 \
        const T *bias = call->in[1] ? (const T *)call->in[1]->data : NULL;                                            \
        const int64_t c = call->out[0]->dims[1], size = w->out[0] * w->out[1] * w->out[2];                            \
        const int64_t windows = w->windows[0] * w->windows[1] * w->windows[2];                                        \
        const int64_t columns = w->taps[0] * w->taps[1] * w->taps[2] * windows;                                       \
        for (int64_t plane = begin; plane < end; plane++) {                                                           \
            T *y = (T *)call->out[0]->data + plane * size;                                                            \
            const T start = bias ? bias[plane % c] : 0;                                                               \
            HT_LONG_FOR (i, size)                                                                                     \
                y[i] = start;                                                                                         \
            plane_##T(w, (const T *)call->in[0]->data + plane * columns, y);                                          \
        }                                                                                                             \
    }
DEFINE_PLANE(float)
DEFINE_PLANE(double)

typedef struct {
    const ht_call *call;
    const layout *w;
    int64_t planes, parts;
} job;

static void col2im_part(void *context, int64_t part, int thread)
{
    const job *j = (const job *)context;
    const int64_t begin = ht_part_begin(j->planes, j->parts, part), end = ht_part_begin(j->planes, j->parts, part + 1);
    (void)thread;
    if (j->call->out[0]->dtype == HT_FLOAT32)
        planes_float(j->call, j->w, begin, end);
    else
        planes_double(j->call, j->w, begin, end);
}

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
        if (w.taps[i] < 1 || w.windows[i] < 0 || w.stride[i] < 1 || w.dilation[i] < 1 || w.taps[i] > HT_MAX_WINDOW ||
            w.stride[i] > HT_MAX_WINDOW || w.dilation[i] > HT_MAX_WINDOW || w.pad[i] < 0)
            return HT_ERR_OPERAND;
        expected *= w.taps[i] * w.windows[i];
    }
    if (columns->size != expected)
        return HT_ERR_OPERAND;
    if (y->dtype != HT_FLOAT32 && y->dtype != HT_FLOAT64)
        return HT_ERR_DTYPE;
    const int64_t planes = y->dims[0] * y->dims[1];
    job j = {call, &w, planes, ht_parts(call, planes, 4 * ((double)columns->size + (double)y->size))};
    ht_parallel(call->team, j.parts, col2im_part, &j);
    return HT_OK;
}
