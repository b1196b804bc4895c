/* unique: the distinct slices of x[outer][n][inner] along its middle axis.
 *
 * Operands: in x (numeric or bool); out first[n], counts[n] (int64: the first position and the number of occurrences of
 * each distinct slice; zeros after the last), inverse[n] (int64: the number of the distinct slice at each position),
 * count[1] (int64: the number of distinct slices). ints: outer, n, inner, sorted (in ascending order, element by
 * element in row-major order; else in the order of first occurrence). Scratch: 16 * n bytes. Two NaN are equal, and
 * larger than everything else.
 * Cost: a merge sort, n log n comparisons of slices. It is stable: the first of equal slices comes first.
 */
#include "elements.h"
#include "vec.h"

enum { COMPARING = 15 }; /* operations of one comparison, about: bounds the time between two checks for a stop */

typedef struct {
    const void *x;
    int64_t outer, n, inner;
    int single; /* slices are single elements */
} slices;

#define DEFINE_SORT(D, s, T, U)                                                                                       \
    /* Negative, zero or positive if slice a is before, equal to or after slice b. */                                 \
    static inline int compare_##s(const slices *v, int64_t a, int64_t b)                                              \
    {                                                                                                                 \
        if (v->single) {                                                                                              \
            const T p = ((const T *)v->x)[a], q = ((const T *)v->x)[b];                                               \
            return p < q || (q != q && p == p) ? -1 : p > q || (p != p && q == q);                                    \
        }                                                                                                             \
        for (int64_t o = 0; o < v->outer && !ht_stops_at(o); o++) {                                                   \
            const T *x = (const T *)v->x + o * v->n * v->inner;                                                       \
            HT_LONG_FOR (i, v->inner) {                                                                               \
                const T p = x[a * v->inner + i], q = x[b * v->inner + i];                                             \
                if (p < q || (q != q && p == p))                                                                      \
                    return -1;                                                                                        \
                if (p > q || (p != p && q == q))                                                                      \
                    return 1;                                                                                         \
            }                                                                                                         \
        }                                                                                                             \
        return 0;                                                                                                     \
    }                                                                                                                 \
    /* Returns early if the run must end; the order of item is then undefined. */                                     \
    static void sort_##s(const slices *v, int64_t *item, int64_t *room)                                               \
    {                                                                                                                 \
        int64_t left = HT_PIECE;                                                                                      \
        const int64_t compared = COMPARING + (v->single ? 0 : v->outer * v->inner);                                   \
        for (int64_t width = 1; width < v->n; width *= 2) {                                                           \
            for (int64_t low = 0; low < v->n; low += 2 * width) {                                                     \
                const int64_t middle = ht_min64(low + width, v->n), high = ht_min64(low + 2 * width, v->n);           \
                int64_t a = low, b = middle;                                                                          \
                for (int64_t k = low; k < high; k++) {                                                                \
                    if (ht_paced_stop(&left, compared))                                                               \
                        return;                                                                                       \
                    room[k] = b >= high || (a < middle && compare_##s(v, item[a], item[b]) <= 0) ? item[a++]          \
                                                                                                 : item[b++];         \
                }                                                                                                     \
            }                                                                                                         \
            ht_long_copy(item, room, v->n * (int64_t)sizeof *item);                                                   \
        }                                                                                                             \
    }
HT_NUMERIC_TYPES(DEFINE_SORT)
DEFINE_SORT(HT_BOOL, b, uint8_t, uint32_t)

int HT_KERNEL(unique)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 4 || call->num_ints != 4)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0];
    const slices v = {x->data, call->ints[0], call->ints[1], call->ints[2],
                      call->ints[0] == 1 && call->ints[2] == 1};
    if (v.outer < 0 || v.n < 0 || v.inner < 0 || x->size != v.outer * v.n * v.inner || call->scratch_bytes < ht_scratch_unique(v.n))
        return HT_ERR_OPERAND;
    for (int i = 0; i < 4; i++)
        if (call->out[i]->dtype != HT_INT64 || call->out[i]->size != (i == 3 ? 1 : v.n))
            return HT_ERR_OPERAND;
    int64_t *first = call->out[0]->data, *counts = call->out[1]->data, *inverse = call->out[2]->data, num_unique = 0;
    int64_t *item = call->scratch, *room = item + v.n;
    int (*compare)(const slices *, int64_t, int64_t) = NULL;
    HT_LONG_FOR (i, v.n)
        item[i] = i;
    switch (x->dtype) {
#define CASE(D, s, T, U)          \
    case D:                       \
        sort_##s(&v, item, room); \
        compare = compare_##s;    \
        break;
        HT_NUMERIC_TYPES(CASE)
        CASE(HT_BOOL, b, uint8_t, uint32_t)
    default: return HT_ERR_DTYPE;
    }
    if (v.n > HT_PIECE && ht_stopping())
        return HT_OK; /* item may be incomplete */
    HT_LONG_FOR (i, v.n) {
        if (i == 0 || compare(&v, item[i - 1], item[i]) != 0) {
            first[num_unique] = item[i];
            counts[num_unique++] = 0;
        }
        counts[num_unique - 1]++;
        inverse[item[i]] = num_unique - 1;
    }
    if (!call->ints[3]) { /* number the distinct slices by first occurrence */
        int64_t *number = item, *old_counts = room, next = 0;
        HT_LONG_FOR (k, num_unique) {
            number[k] = -1;
            old_counts[k] = counts[k];
        }
        if (v.n > HT_PIECE && ht_stopping())
            return HT_OK; /* inverse may be incomplete */
        HT_LONG_FOR (i, v.n) {
            const int64_t k = inverse[i];
            if (number[k] < 0) {
                number[k] = next;
                first[next] = i;
                counts[next++] = old_counts[k];
            }
            inverse[i] = number[k];
        }
    }
    for (int64_t k = num_unique; k < v.n && !ht_stops_at(k); k++)
        first[k] = counts[k] = 0;
    *(int64_t *)call->out[3]->data = num_unique;
    return HT_OK;
}
