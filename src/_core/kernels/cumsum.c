/* Running sums (cumsum) or products (cumprod) along an axis. Operands: in x; out of x's dims and dtype (numeric).
 * Parameters: ints = axis, exclusive (the element itself is not included), reverse (from the end). Integers wrap. The
 * sums run in order in the element type, so every instruction set gives the same bits.
 */
#include "elements.h"
#include "vec.h"

HT_INLINE int accumulate(const ht_call *call, const int product)
{
    if (call->num_in != 1 || call->num_out != 1 || call->num_ints != 3)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0];
    ht_tensor *out = call->out[0];
    const int64_t axis = call->ints[0], exclusive = call->ints[1] != 0, reverse = call->ints[2] != 0;
    if (axis < 0 || axis >= x->ndim || !ht_same_dims(x, out) || x->dtype != out->dtype)
        return HT_ERR_OPERAND;
    const int64_t outer = ht_product(x->dims, 0, (int)axis), n = x->dims[axis];
    const int64_t inner = ht_product(x->dims, (int)axis + 1, x->ndim);
    if (x->size == 0)
        return HT_OK;
    int64_t left = HT_PACE;
    switch (x->dtype) {
    /* Row k of out is row k-1 of out plus row k of x (exclusive: row k-1 of x), from either end. */
#define CASE(D, s, T, U)                                                                              \
    case D:                                                                                           \
        for (int64_t o = 0; o < outer; o++) {                                                         \
            const T *from = (const T *)x->data + o * n * inner;                                       \
            T *to = (T *)out->data + o * n * inner;                                                   \
            const int64_t first = reverse ? n - 1 : 0, way = reverse ? -inner : inner;                \
            HT_LONG_FOR (i, inner)                                                                    \
                to[first * inner + i] = exclusive ? (T)product : from[first * inner + i];                      \
            for (int64_t k = 1; k < n; k++) {                                                         \
                if (ht_paced_stop(&left, inner))                                                      \
                    return HT_OK;                                                                     \
                const int64_t at = first * inner + k * way, read = exclusive ? at - way : at;         \
                HT_LONG_FOR (i, inner) {                                                              \
                    const U a = (U)to[at - way + i], b = (U)from[read + i];                           \
                    to[at + i] = (T)(product ? a * b : a + b);                                        \
                }                                                                                     \
            }                                                                                         \
        }                                                                                             \
        return HT_OK;
        HT_NUMERIC_TYPES(CASE)
    default: return HT_ERR_DTYPE;
    }
}

int HT_KERNEL(cumsum)(const ht_call *call) { return accumulate(call, 0); }
int HT_KERNEL(cumprod)(const ht_call *call) { return accumulate(call, 1); }
