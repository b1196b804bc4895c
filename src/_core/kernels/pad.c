/* out = x with a border. Operands: in x, and for HT_PAD_CONSTANT optionally value (1 element of x's dtype; absent: zero bytes);
 * out of x's rank and dtype. Parameters: ints = mode, before[rank]; the pads at the end follow from out's dims.
 * Negative pads, at either end, first remove elements from x; no mode reads the removed elements.
 * mode: HT_PAD_*. REFLECT does not repeat the edge, and may bounce several times.
 * Modes other than CONSTANT give HT_ERR_OPERAND if an axis has no elements left, unless out is empty too. Elements are only moved,
 * so any dtype works.
 */
#include "elements.h"

#include <string.h>

enum { CONSTANT = HT_PAD_CONSTANT, REFLECT = HT_PAD_REFLECT, EDGE = HT_PAD_EDGE, WRAP = HT_PAD_WRAP };

/* Source of position i (may lie outside) on an axis of `size` >= 1; -1: the constant. */
static int64_t source(int64_t i, int64_t size, int64_t mode)
{
    if (i >= 0 && i < size)
        return i;
    if (mode == CONSTANT)
        return -1;
    if (mode == EDGE)
        return i < 0 ? 0 : size - 1;
    const int64_t period = mode == WRAP || size == 1 ? size : 2 * (size - 1);
    i %= period;
    if (i < 0)
        i += period;
    return i < size ? i : period - i;
}

/* Per axis: the first element of x that negative pads keep, how many they keep, and where the first of them goes in
 * out. */
typedef struct {
    int64_t first[HT_MAX_DIMS], size[HT_MAX_DIMS], before[HT_MAX_DIMS];
} cropped;

#define DEFINE_ROW(T)                                                                                          \
    static void row_##T(const T *x, T *out, int64_t n, int64_t before, int64_t size, int64_t mode, T value)    \
    {                                                                                                          \
        int64_t left = HT_PIECE;                                                                               \
        for (int64_t i = 0; i < n;) {                                                                          \
            if (ht_paced_stop(&left, 0))                                                                       \
                return;                                                                                        \
            const int64_t from = i - before;                                                                   \
            if (x != NULL && from >= 0 && from < size) { /* the inside: one copy */                            \
                const int64_t length = size - from < n - i ? size - from : n - i;                              \
                ht_long_copy(out + i, x + from, length * (int64_t)sizeof(T));                                  \
                i += length;                                                                                   \
                continue;                                                                                      \
            }                                                                                                  \
            const int64_t k = x == NULL ? -1 : source(from, size, mode);                                       \
            out[i++] = k < 0 ? value : x[k];                                                                   \
        }                                                                                                      \
    }                                                                                                          \
    static void rows_##T(const ht_tensor *x, ht_tensor *out, const cropped *c, int64_t mode, T value)          \
    {                                                                                                          \
        const int last = out->ndim - 1;                                                                        \
        int64_t position[HT_MAX_DIMS] = {0};                                                                   \
        T *to = (T *)out->data;                                                                                \
        const int64_t n = out->dims[last];                                                                     \
        int64_t left = HT_PACE;                                                                                \
        for (int64_t done = 0; done < out->size; done += n) {                                                  \
            if (ht_paced_stop(&left, n))                                                                       \
                return;                                                                                        \
            int64_t at = 0;                                                                                    \
            for (int d = 0; d < last && at >= 0; d++) {                                                        \
                const int64_t k = c->size[d] > 0 ? source(position[d] - c->before[d], c->size[d], mode) : -1;  \
                at = k < 0 ? -1 : at * x->dims[d] + c->first[d] + k;                                           \
            }                                                                                                  \
            const T *row = at < 0 ? NULL : (const T *)x->data + at * x->dims[last] + c->first[last];           \
            row_##T(c->size[last] > 0 ? row : NULL, to + done, n, c->before[last], c->size[last], mode, value);\
            for (int d = last - 1; d >= 0 && ++position[d] == out->dims[d]; d--)                               \
                position[d] = 0;                                                                               \
        }                                                                                                      \
    }
DEFINE_ROW(uint8_t)
DEFINE_ROW(uint16_t)
DEFINE_ROW(uint32_t)
DEFINE_ROW(uint64_t)

int HT_KERNEL(pad)(const ht_call *call)
{
    if (call->num_in < 1 || call->num_in > 2 || call->num_out != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *value = call->num_in == 2 ? call->in[1] : NULL;
    ht_tensor *out = call->out[0];
    if (call->num_ints != 1 + x->ndim || x->ndim < 1 || out->ndim != x->ndim || out->dtype != x->dtype ||
        (value && (value->size != 1 || value->dtype != x->dtype)))
        return HT_ERR_OPERAND;
    const int64_t mode = call->ints[0], bytes = ht_element_bytes(x->dtype);
    if (mode < CONSTANT || mode > WRAP)
        return HT_ERR_OPERAND;
    if (out->size == 0)
        return HT_OK;
    cropped c;
    for (int d = 0; d < x->ndim; d++) {
        const int64_t before = call->ints[1 + d];
        if (before < -((int64_t)1 << 60) || before > ((int64_t)1 << 60))
            return HT_ERR_OPERAND;
        const int64_t after = out->dims[d] - x->dims[d] - before;
        c.before[d] = before > 0 ? before : 0;
        c.first[d] = c.before[d] - before;
        c.size[d] = x->dims[d] - c.first[d] + (after < 0 ? after : 0);
        if (mode != CONSTANT && c.size[d] <= 0)
            return HT_ERR_OPERAND;
    }
    uint64_t bits = 0;
    if (value)
        memcpy(&bits, value->data, (size_t)bytes);
#define CASE(size, T)                                      \
    case size: {                                           \
        T v;                                               \
        memcpy(&v, &bits, sizeof v);                       \
        rows_##T(x, out, &c, mode, v);                     \
        return HT_OK;                                      \
    }
    switch (bytes) {
        CASE(1, uint8_t)
        CASE(2, uint16_t)
        CASE(4, uint32_t)
        CASE(8, uint64_t)
    default: return HT_ERR_DTYPE;
    }
}
