/* Running sums (cumsum) or products (cumprod) along an axis. Operands: in x; out of x's dims and dtype (numeric).
 * Parameters: ints = axis, exclusive (the element itself is not included), reverse (from the end). Integers wrap. The
 * sums run in order in the element type, so every instruction set gives the same bits. Along the last axis, each sum
 * waits for the one before, so several rows are summed side by side.
 */
#include "elements.h"
#include "vec.h"

enum { SIDE_BY_SIDE = 8 };

typedef struct {
    int64_t n, inner, first, way; /* first: where the sums begin along the axis; way: elements from one to the next */
    int exclusive;
} layout;

/* Row k of out is row k - 1 of out plus row k of x (exclusive: row k - 1 of x), from either end. */
#define DEFINE(D, s, T, U)                                                                                            \
    HT_INLINE T joined_##s(T sum, T x, const int product) { return (T)(product ? (U)sum * (U)x : (U)sum + (U)x); }    \
    /* `rows` rows along the last axis. Returns 0 if the run must stop. */                                            \
    HT_INLINE int rows_##s(const layout *l, const T *from, T *to, const int rows, const int product, int64_t *left)   \
    {                                                                                                                 \
        const int64_t back = l->exclusive ? l->way : 0;                                                               \
        T sums[SIDE_BY_SIDE];                                                                                         \
        for (int r = 0; r < rows; r++)                                                                                \
            to[r * l->n + l->first] = sums[r] = l->exclusive ? (T)product : from[r * l->n + l->first];                \
        for (int64_t k = 1, at = l->first + l->way; k < l->n;) {                                                      \
            const int64_t end = ht_min64(l->n, k + HT_ROW_PIECE);                                                     \
            if (ht_paced_stop(left, rows * (end - k)))                                                                \
                return 0;                                                                                             \
            for (; k < end; k++, at += l->way)                                                                        \
                for (int r = 0; r < rows; r++)                                                                        \
                    to[r * l->n + at] = sums[r] = joined_##s(sums[r], from[r * l->n + at - back], product);           \
        }                                                                                                             \
        return 1;                                                                                                     \
    }                                                                                                                 \
    HT_INLINE int plane_##s(const layout *l, const T *from, T *to, const int product, int64_t *left)                  \
    {                                                                                                                 \
        const int64_t way = l->way * l->inner, back = l->exclusive ? way : 0;                                         \
        from += l->first * l->inner;                                                                                  \
        to += l->first * l->inner;                                                                                    \
        HT_LONG_FOR (i, l->inner)                                                                                     \
            to[i] = l->exclusive ? (T)product : from[i];                                                              \
        for (int64_t k = 1; k < l->n; k++) {                                                                          \
            if (ht_paced_stop(left, l->inner))                                                                        \
                return 0;                                                                                             \
            to += way;                                                                                                \
            from += way;                                                                                              \
            HT_LONG_FOR (i, l->inner)                                                                                 \
                to[i] = joined_##s(to[i - way], from[i - back], product);                                             \
        }                                                                                                             \
        return 1;                                                                                                     \
    }                                                                                                                 \
    HT_INLINE void planes_##s(const layout *l, const T *from, T *to, int64_t outer, const int product)                \
    {                                                                                                                 \
        const int64_t size = l->n * l->inner;                                                                         \
        int64_t left = HT_PACE, o = 0;                                                                                \
        int goes_on = 1;                                                                                              \
        for (; goes_on && l->inner == 1 && o + SIDE_BY_SIDE <= outer; o += SIDE_BY_SIDE)                              \
            goes_on = rows_##s(l, from + o * size, to + o * size, SIDE_BY_SIDE, product, &left);                      \
        for (; goes_on && o < outer; o++)                                                                             \
            goes_on = l->inner == 1 ? rows_##s(l, from + o * size, to + o * size, 1, product, &left)                  \
                                    : plane_##s(l, from + o * size, to + o * size, product, &left);                   \
    }                                                                                                                 \
    /* Functions of their own: as one, they took GCC half as long again. */                                           \
    static __attribute__((noinline)) void sums_##s(const layout *l, const void *x, void *out, int64_t outer)          \
    {                                                                                                                 \
        planes_##s(l, x, out, outer, 0);                                                                              \
    }                                                                                                                 \
    static __attribute__((noinline)) void products_##s(const layout *l, const void *x, void *out, int64_t outer)      \
    {                                                                                                                 \
        planes_##s(l, x, out, outer, 1);                                                                              \
    }
HT_FLOAT_TYPES(DEFINE)
HT_UNSIGNED_TYPES(DEFINE)

HT_INLINE int accumulate(const ht_call *call, const int product)
{
    if (call->num_in != 1 || call->num_out != 1 || call->num_ints != 3)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0];
    ht_tensor *out = call->out[0];
    const int64_t axis = call->ints[0], reverse = call->ints[2] != 0;
    if (axis < 0 || axis >= x->ndim || !ht_same_dims(x, out) || x->dtype != out->dtype)
        return HT_ERR_OPERAND;
    const int64_t outer = ht_product(x->dims, 0, (int)axis);
    layout l = {.n = x->dims[axis], .inner = ht_product(x->dims, (int)axis + 1, x->ndim), .exclusive = call->ints[1] != 0};
    l.first = reverse ? l.n - 1 : 0;
    l.way = reverse ? -1 : 1;
    if (x->size == 0)
        return HT_OK;
    switch (ht_unsigned(x->dtype)) {
#define CASE(D, s, T, U)                                                                \
    case D: (product ? products_##s : sums_##s)(&l, x->data, out->data, outer); return HT_OK;
        HT_FLOAT_TYPES(CASE)
        HT_UNSIGNED_TYPES(CASE)
    default: return HT_ERR_DTYPE;
    }
}

int HT_KERNEL(cumsum)(const ht_call *call) { return accumulate(call, 0); }
int HT_KERNEL(cumprod)(const ht_call *call) { return accumulate(call, 1); }
