/* topk: the k largest or smallest elements along an axis, best first; of equal ones the lower index comes first.
 *
 * Operands: in x[outer][n][inner]; out values[outer][k][inner] of x's dtype (numeric), indices (the same, int64).
 * Parameters: ints = outer, n, inner, k (0 <= k <= n), largest. Scratch: 8 * k bytes. NaN counts as the largest.
 *
 * A heap of the k best so far, its worst on top: O(n log k) per row, and O(n) where the rest is never better. Same
 * result in every instruction set.
 */
#include "elements.h"

#define NUMERIC_ROW(D, s, T, U)                                                                                  \
    /* Whether element a comes before element b. */                                                              \
    static inline int before_##s(const T *x, int64_t inner, int64_t a, int64_t b, int largest)                   \
    {                                                                                                            \
        const T u = x[a * inner], v = x[b * inner];                                                              \
        const int greater = u > v || (u != u && v == v), less = u < v || (v != v && u == u);                     \
        if (greater || less)                                                                                     \
            return largest ? greater : less;                                                                     \
        return a < b;                                                                                            \
    }                                                                                                            \
    /* Let the element at the top sink to its place: every parent comes after its children. */                   \
    static void sink_##s(const T *x, int64_t inner, int64_t *heap, int64_t size, int64_t at, int largest)        \
    {                                                                                                            \
        const int64_t item = heap[at];                                                                           \
        for (;;) {                                                                                               \
            int64_t child = 2 * at + 1;                                                                          \
            if (child >= size)                                                                                   \
                break;                                                                                           \
            if (child + 1 < size && before_##s(x, inner, heap[child], heap[child + 1], largest))                 \
                child++;                                                                                         \
            if (!before_##s(x, inner, item, heap[child], largest))                                               \
                break;                                                                                           \
            heap[at] = heap[child];                                                                              \
            at = child;                                                                                          \
        }                                                                                                        \
        heap[at] = item;                                                                                         \
    }                                                                                                            \
    static void row_##s(const void *px, void *pvalues, int64_t *indices, int64_t n, int64_t inner, int64_t k,    \
                        int largest, int64_t *heap)                                                              \
    {                                                                                                            \
        const T *x = (const T *)px;                                                                              \
        T *values = (T *)pvalues;                                                                                \
        for (int64_t i = 0; i < k; i++)                                                                          \
            heap[i] = i;                                                                                         \
        for (int64_t i = k / 2; i-- > 0;)                                                                        \
            sink_##s(x, inner, heap, k, i, largest);                                                             \
        for (int64_t i = k; i < n; i++)                                                                          \
            if (before_##s(x, inner, i, heap[0], largest)) {                                                     \
                heap[0] = i;                                                                                     \
                sink_##s(x, inner, heap, k, 0, largest);                                                         \
            }                                                                                                    \
        for (int64_t size = k; size > 0; size--) { /* the worst of those left goes to the end */                 \
            indices[(size - 1) * inner] = heap[0];                                                               \
            values[(size - 1) * inner] = x[heap[0] * inner];                                                     \
            heap[0] = heap[size - 1];                                                                            \
            sink_##s(x, inner, heap, size - 1, 0, largest);                                                      \
        }                                                                                                        \
    }
HT_NUMERIC_TYPES(NUMERIC_ROW)

int HT_KERNEL(topk)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 2 || call->num_ints != 5)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0];
    ht_tensor *values = call->out[0], *indices = call->out[1];
    const int64_t outer = call->ints[0], n = call->ints[1], inner = call->ints[2], k = call->ints[3];
    const int largest = call->ints[4] != 0;
    if (outer < 0 || inner < 0 || k < 0 || k > n || x->size != outer * n * inner || values->size != outer * k * inner ||
        indices->size != values->size || values->dtype != x->dtype || indices->dtype != HT_INT64 ||
        call->scratch_bytes < 8 * k)
        return HT_ERR_OPERAND;
    if (values->size == 0)
        return HT_OK;
    switch (x->dtype) {
#define CASE(D, s, T, U)                                                                                          \
    case D:                                                                                                       \
        for (int64_t o = 0; o < outer; o++)                                                                       \
            for (int64_t i = 0; i < inner; i++)                                                                   \
                row_##s((const T *)x->data + o * n * inner + i, (T *)values->data + o * k * inner + i,            \
                        (int64_t *)indices->data + o * k * inner + i, n, inner, k, largest,                       \
                        (int64_t *)call->scratch);                                                                \
        return HT_OK;
        HT_NUMERIC_TYPES(CASE)
    default: return HT_ERR_DTYPE;
    }
}
