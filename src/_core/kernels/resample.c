/* Resampling along one axis of x[outer][size][inner]; an image is resized axis by axis.
 *
 *   resample   y[o][j][i] = sum over t of weight[t][j] * x[o][start[j] + t][i].  in x (float32 or float64), start[length]
 *              (int32), weight[taps][length] (x's dtype); out y[outer][length][inner].
 *              ints: outer, size, inner, length, taps.
 *   pick       y[o][j][i] = x[o][start[j]][i].  in x (any dtype), start[length] (int32); out y.
 *              ints: outer, size, inner, length.
 *
 * A window that leaves its axis gives HT_ERR_INDEX. Cost: taps multiplications per output. Along the innermost axis
 * (inner = 1) weights and starts run with the outputs, so that the loop over these vectorises with gathers.
 */
#include "elements.h"
#include "vec.h"

#define DEFINE_RESAMPLE(T)                                                                                          \
    static void rows_##T(const T *x, const T *weight, T *y, int64_t inner, int64_t length, int64_t taps)            \
    {                                                                                                               \
        const T first = weight[0];                                                                                  \
        for (int64_t i = 0; i < inner; i++)                                                                         \
            y[i] = first * x[i];                                                                                    \
        for (int64_t t = 1; t < taps; t++) {                                                                        \
            const T w = weight[t * length];                                                                         \
            const T *row = x + t * inner;                                                                           \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < inner; i++) y[i] += w * row[i];                            \
        }                                                                                                           \
    }                                                                                                               \
    static void pairs_##T(const T *x, T a, T b, T *y, int64_t inner)                                                \
    {                                                                                                               \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < inner; i++) y[i] = a * x[i] + b * x[inner + i];                \
    }                                                                                                               \
    static void line_##T(const T *HT_RESTRICT x, const int32_t *HT_RESTRICT start, const T *HT_RESTRICT weight,     \
                         T *HT_RESTRICT y, int64_t length, int64_t taps)                                            \
    {                                                                                                               \
        if (taps == 2) {                                                                                            \
            for (int64_t j = 0; j < length; j++)                                                                    \
                y[j] = weight[j] * x[start[j]] + weight[length + j] * x[start[j] + 1];                              \
            return;                                                                                                 \
        }                                                                                                           \
        for (int64_t j = 0; j < length; j++)                                                                        \
            y[j] = weight[j] * x[start[j]];                                                                         \
        for (int64_t t = 1; t < taps; t++)                                                                          \
            for (int64_t j = 0; j < length; j++)                                                                    \
                y[j] += weight[t * length + j] * x[start[j] + t];                                                   \
    }                                                                                                               \
    static void resample_##T(const ht_call *call)                                                                   \
    {                                                                                                               \
        const int64_t outer = call->ints[0], size = call->ints[1], inner = call->ints[2];                           \
        const int64_t length = call->ints[3], taps = call->ints[4];                                                 \
        const int32_t *start = (const int32_t *)call->in[1]->data;                                                  \
        const T *x = (const T *)call->in[0]->data, *weight = (const T *)call->in[2]->data;                          \
        T *y = (T *)call->out[0]->data;                                                                             \
        for (int64_t o = 0; o < outer; o++, x += size * inner) {                                                    \
            if (inner == 1) {                                                                                       \
                line_##T(x, start, weight, y, length, taps);                                                        \
                y += length;                                                                                        \
                continue;                                                                                           \
            }                                                                                                       \
            for (int64_t j = 0; j < length; j++, y += inner) {                                                      \
                const T *from = x + start[j] * inner;                                                               \
                if (taps == 2)                                                                                      \
                    pairs_##T(from, weight[j], weight[length + j], y, inner);                                       \
                else                                                                                                \
                    rows_##T(from, weight + j, y, inner, length, taps);                                             \
            }                                                                                                       \
        }                                                                                                           \
    }
DEFINE_RESAMPLE(float)
DEFINE_RESAMPLE(double)

/* Operands that both share, and that all windows of `taps` elements lie within the axis. */
static int check(const ht_call *call, int num_in, int num_ints, int64_t taps)
{
    if (call->num_in != num_in || call->num_out != 1 || call->num_ints != num_ints)
        return HT_ERR_OPERAND;
    const int64_t outer = call->ints[0], size = call->ints[1], inner = call->ints[2], length = call->ints[3];
    const ht_tensor *x = call->in[0], *start = call->in[1];
    if (outer < 0 || size < 0 || inner < 0 || length < 0 || taps < 1 || start->dtype != HT_INT32 ||
        start->size != length || call->out[0]->dtype != x->dtype || x->size != outer * size * inner ||
        call->out[0]->size != outer * length * inner)
        return HT_ERR_OPERAND;
    if (call->out[0]->size == 0)
        return HT_OK;
    for (int64_t j = 0; j < length; j++) {
        const int64_t first = ((const int32_t *)start->data)[j];
        if (first < 0 || first > size - taps)
            return HT_ERR_INDEX;
    }
    return HT_OK;
}

int HT_KERNEL(resample)(const ht_call *call)
{
    const int64_t taps = call->num_ints == 5 ? call->ints[4] : 0;
    const int status = check(call, 3, 5, taps);
    if (status != HT_OK)
        return status;
    const ht_tensor *weight = call->in[2];
    if (weight->dtype != call->in[0]->dtype || weight->size != taps * call->ints[3])
        return HT_ERR_OPERAND;
    if (call->out[0]->size == 0)
        return HT_OK;
    if (weight->dtype == HT_FLOAT32)
        resample_float(call);
    else if (weight->dtype == HT_FLOAT64)
        resample_double(call);
    else
        return HT_ERR_DTYPE;
    return HT_OK;
}

#define DEFINE_PICK(T)                                                                                            \
    static void pick_##T(const void *from, const int32_t *HT_RESTRICT start, void *to, int64_t length)            \
    {                                                                                                             \
        const T *HT_RESTRICT x = (const T *)from;                                                                 \
        T *HT_RESTRICT y = (T *)to;                                                                               \
        for (int64_t j = 0; j < length; j++)                                                                      \
            y[j] = x[start[j]];                                                                                   \
    }
DEFINE_PICK(uint8_t)
DEFINE_PICK(uint16_t)
DEFINE_PICK(uint32_t)
DEFINE_PICK(uint64_t)

int HT_KERNEL(pick)(const ht_call *call)
{
    const int status = check(call, 2, 4, 1);
    if (status != HT_OK)
        return status;
    const int64_t outer = call->ints[0], size = call->ints[1], inner = call->ints[2], length = call->ints[3];
    const int64_t bytes = ht_element_bytes(call->in[0]->dtype), row = inner * bytes;
    const int32_t *start = (const int32_t *)call->in[1]->data;
    const char *x = (const char *)call->in[0]->data;
    char *y = (char *)call->out[0]->data;
    if (bytes == 0)
        return HT_ERR_DTYPE;
    if (call->out[0]->size == 0)
        return HT_OK;
    for (int64_t o = 0; o < outer; o++, x += size * row, y += length * row) {
        if (inner > 1) {
            for (int64_t j = 0; j < length; j++)
                memcpy(y + j * row, x + start[j] * row, (size_t)row);
            continue;
        }
        switch (bytes) {
        case 1: pick_uint8_t(x, start, y, length); break;
        case 2: pick_uint16_t(x, start, y, length); break;
        case 4: pick_uint32_t(x, start, y, length); break;
        default: pick_uint64_t(x, start, y, length); break;
        }
    }
    return HT_OK;
}
