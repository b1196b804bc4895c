/* topk: the k largest or smallest elements along an axis, best first; of equal ones the lower index comes first.
 *
 * Operands: in x[outer][n][inner]; out values[outer][k][inner] of x's dtype (numeric), indices (the same, int64).
 * Parameters: ints = outer, n, inner, k (0 <= k <= n), largest. NaN counts as the largest.
 * Scratch: 4 * min(inner, 8) * n + 8 * n + 16 * k + 512 bytes; for elements of 8 bytes 8 * min(inner, 8) * n + 20 * n +
 * 32 * k + 1024. With less, but at least 8 * k, or if n > 2^30, it is slower. The result is the same in every
 * instruction set; threads take rows.
 *
 * Elements are mapped to keys, integers of the same order; best_keys.c finds the best: O(n + k). Without memory for
 * keys, a heap holds the k best so far with the worst on top: O(n log k), or O(n) if replacements are rare. The heap is
 * also tried first for elements of 8 bytes if k is so small that reading them dominates the time.
 */
#include "best_keys.h"
#include "elements.h"
#include "vec.h"

enum {
    COLUMNS = HT_TOPK_COLUMNS,
    RARE = 1000,  /* elements per result: from here on rows of 8-byte elements first try the heap */
    SEVERAL = 16, /* replacements per result that this heap may take before it gives up and keys are used */
    SINKING = 64  /* operations of one pass down a heap, about: bounds the time between two checks for a stop */
};

/* ---- keys */

#define FLOAT_KEY(v) float_key(v)
#define DOUBLE_KEY(v) double_key(v)
#define SIGNED_KEY(v) (v)
#define UNSIGNED_KEY(v) ((int32_t)((uint32_t)(v) ^ 0x80000000u))
#define UNSIGNED_WIDE_KEY(v) ((int64_t)((uint64_t)(v) ^ (uint64_t)INT64_MIN))

HT_INLINE int32_t float_key(float v)
{
    int32_t bits;
    const float sum = v + 0.0f; /* -0 becomes 0, which it equals */
    memcpy(&bits, &sum, sizeof bits);
    return v != v ? INT32_MAX : bits ^ (bits >> 31 & INT32_MAX);
}

HT_INLINE int64_t double_key(double v)
{
    int64_t bits;
    const double sum = v + 0.0; /* as in the float version */
    memcpy(&bits, &sum, sizeof bits);
    return v != v ? INT64_MAX : bits ^ (bits >> 63 & INT64_MAX);
}

/* Keys of `columns` adjacent rows, one row after the other. flip: -1 if smaller is better, else 0. */
#define DEFINE_KEYS(s, T, K, KEY)                                                                                   \
    static void keys_##s(const void *from, int64_t inner, int64_t columns, int64_t n, int32_t flip, void *to)       \
    {                                                                                                               \
        K *keys = (K *)to;                                                                                          \
        const T *x = (const T *)from;                                                                               \
        if (inner == 1)                                                                                             \
            HT_LONG_FOR (i, n)                                                                                      \
                keys[i] = KEY(x[i]) ^ flip;                                                                         \
        else                                                                                                        \
            HT_LONG_FOR (i, n)                                                                                      \
                for (int64_t column = 0; column < columns; column++)                                                \
                    keys[column * n + i] = KEY(x[i * inner + column]) ^ flip;                                       \
    }
DEFINE_KEYS(f32, float, int32_t, FLOAT_KEY)
DEFINE_KEYS(i8, int8_t, int32_t, SIGNED_KEY)
DEFINE_KEYS(i16, int16_t, int32_t, SIGNED_KEY)
DEFINE_KEYS(i32, int32_t, int32_t, SIGNED_KEY)
DEFINE_KEYS(u8, uint8_t, int32_t, SIGNED_KEY)
DEFINE_KEYS(u16, uint16_t, int32_t, SIGNED_KEY)
DEFINE_KEYS(u32, uint32_t, int32_t, UNSIGNED_KEY)
DEFINE_KEYS(f64, double, int64_t, DOUBLE_KEY)
DEFINE_KEYS(i64, int64_t, int64_t, SIGNED_KEY)
DEFINE_KEYS(u64, uint64_t, int64_t, UNSIGNED_WIDE_KEY)

typedef void (*keys_fn)(const void *from, int64_t inner, int64_t columns, int64_t n, int32_t flip, void *to);

#define DEFINE_PICK(s, T)                                                                                          \
    static void pick_##s(const void *from, int64_t inner, const uint64_t *items, int64_t k, void *to, int64_t *indices) \
    {                                                                                                               \
        const T *x = (const T *)from;                                                                               \
        T *values = (T *)to;                                                                                        \
        HT_LONG_FOR (i, k) {                                                                                        \
            const int64_t place = ht_place_of(items[i]);                                                                \
            values[i * inner] = x[place * inner];                                                                   \
            indices[i * inner] = place;                                                                             \
        }                                                                                                           \
    }
DEFINE_PICK(1, uint8_t)
DEFINE_PICK(2, uint16_t)
DEFINE_PICK(4, uint32_t)
DEFINE_PICK(8, uint64_t)

typedef void (*pick_fn)(const void *from, int64_t inner, const uint64_t *items, int64_t k, void *to, int64_t *indices);

/* ---- without keys */

#define DEFINE_HEAP(s, T)                                                                                           \
    /* Whether element a comes before element b. */                                                                 \
    static inline int before_##s(const T *x, int64_t inner, int64_t a, int64_t b, int largest)                      \
    {                                                                                                               \
        const T u = x[a * inner], v = x[b * inner];                                                                 \
        const int greater = u > v || (u != u && v == v), less = u < v || (v != v && u == u);                        \
        if (greater || less)                                                                                        \
            return largest ? greater : less;                                                                        \
        return a < b;                                                                                               \
    }                                                                                                               \
    /* Sifts the element at the top down: every parent comes after its children. */                                 \
    static void sink_##s(const T *x, int64_t inner, int64_t *heap, int64_t size, int64_t at, int largest)           \
    {                                                                                                               \
        const int64_t item = heap[at];                                                                              \
        for (;;) {                                                                                                  \
            int64_t child = 2 * at + 1;                                                                             \
            if (child >= size)                                                                                      \
                break;                                                                                              \
            if (child + 1 < size && before_##s(x, inner, heap[child], heap[child + 1], largest))                    \
                child++;                                                                                            \
            if (!before_##s(x, inner, item, heap[child], largest))                                                  \
                break;                                                                                              \
            heap[at] = heap[child];                                                                                 \
            at = child;                                                                                             \
        }                                                                                                           \
        heap[at] = item;                                                                                            \
    }                                                                                                               \
    /* Returns 0, and writes nothing, if more than `room` elements would be inserted. */                            \
    static int heap_##s(const void *from, int64_t n, int64_t inner, int64_t k, int largest, int64_t room, void *to, \
                         int64_t *indices, int64_t *heap)                                                           \
    {                                                                                                               \
        const T *x = (const T *)from;                                                                               \
        T *values = (T *)to;                                                                                        \
        int64_t left = HT_PACE;                                                                                     \
        for (int64_t i = 0; i < k; i++)                                                                             \
            heap[i] = i;                                                                                            \
        for (int64_t i = k / 2; i-- > 0 && !ht_paced_stop(&left, SINKING);)                                         \
            sink_##s(x, inner, heap, k, i, largest);                                                                \
        for (int64_t i = k, end; i < n; i = end) {                                                                  \
            enum { BLOCK = 16 };                                                                                    \
            const T bar = x[heap[0] * inner];                                                                       \
            if (ht_paced_stop(&left, BLOCK))                                                                        \
                return 1;                                                                                           \
            end = ht_min64(i + BLOCK, n);                                                                           \
            int any = end - i < BLOCK || inner != 1;                                                                \
            if (!any) { /* usual case: no element is better than the worst so far; a later equal one is not better */ \
                for (int j = 0; j < BLOCK; j++)                                                                     \
                    any |= largest ? !(x[i + j] <= bar) : !(x[i + j] >= bar);                                       \
                if (!any)                                                                                           \
                    continue;                                                                                       \
            }                                                                                                       \
            for (; i < end; i++) {                                                                                  \
                const T value = x[i * inner], worst = x[heap[0] * inner];                                           \
                if (largest ? value <= worst : value >= worst)                                                      \
                    continue;                                                                                       \
                if (before_##s(x, inner, i, heap[0], largest)) {                                                    \
                    if (room-- == 0)                                                                                \
                        return 0;                                                                                   \
                    heap[0] = i;                                                                                    \
                    left -= SINKING;                                                                                \
                    sink_##s(x, inner, heap, k, 0, largest);                                                        \
                }                                                                                                   \
            }                                                                                                       \
        }                                                                                                           \
        for (int64_t size = k; size > 0 && !ht_paced_stop(&left, SINKING); size--) { /* the worst remaining one goes to the end */ \
            indices[(size - 1) * inner] = heap[0];                                                                  \
            values[(size - 1) * inner] = x[heap[0] * inner];                                                        \
            heap[0] = heap[size - 1];                                                                               \
            sink_##s(x, inner, heap, size - 1, 0, largest);                                                         \
        }                                                                                                           \
        return 1;                                                                                                   \
    }
#define HEAP_OF(D, s, T, U) DEFINE_HEAP(s, T)
HT_NUMERIC_TYPES(HEAP_OF)

typedef int (*heap_fn)(const void *from, int64_t n, int64_t inner, int64_t k, int largest, int64_t room, void *to,
                       int64_t *indices, int64_t *heap);

/* ---- the call */

typedef struct {
    const ht_call *call;
    const char *x;
    char *values;
    int64_t *indices;
    int64_t bytes, n, inner, k, units, parts;
    int64_t columns; /* rows that are processed together */
    int largest;
    keys_fn keys;
    pick_fn pick;
    heap_fn heap;
    int by_heap;
} job;

static void select_part(void *context, int64_t part, int thread)
{
    const job *j = (const job *)context;
    const int wide = j->bytes == 8;
    const int64_t key_bytes = wide ? 8 : 4;
    char *keys = (char *)ht_scratch(j->call, thread);
    /* Of randomly ordered elements about k * ln(n / k) are inserted. */
    const int rare = wide && !j->by_heap && j->inner == 1 && j->n / RARE >= j->k;
    void *scratch = keys + (key_bytes * j->columns * j->n + 7) / 8 * 8;
    const int64_t blocks = ht_ceil_div(j->inner, j->columns), end = ht_part_begin(j->units, j->parts, part + 1);
    for (int64_t unit = ht_part_begin(j->units, j->parts, part); unit < end; unit++) {
        const int64_t outer = unit / blocks, first = unit % blocks * j->columns;
        const int64_t columns = ht_min64(j->columns, j->inner - first);
        const char *x = j->x + (outer * j->n * j->inner + first) * j->bytes;
        if (rare && j->heap(x, j->n, 1, j->k, j->largest, SEVERAL * j->k, j->values + outer * j->k * j->bytes,
                            j->indices + outer * j->k, (int64_t *)(void *)keys))
            continue;
        if (!j->by_heap)
            j->keys(x, j->inner, columns, j->n, j->largest ? 0 : -1, keys);
        for (int64_t column = 0; column < columns; column++) {
            const int64_t at = outer * j->k * j->inner + first + column;
            const char *row = x + column * j->bytes;
            const void *of_row = keys + column * j->n * key_bytes;
            char *values = j->values + at * j->bytes;
            if (j->by_heap) {
                j->heap(row, j->n, j->inner, j->k, j->largest, j->n, values, j->indices + at, (int64_t *)(void *)keys);
                continue;
            }
            const uint64_t *best = wide ? ht_best_wide_keys(of_row, (int32_t)j->n, (int32_t)j->k, scratch)
                                        : ht_best_keys(of_row, (int32_t)j->n, (int32_t)j->k, scratch);
            if (j->n > HT_PIECE && ht_stopping())
                return; /* the places may be invalid */
            j->pick(row, j->inner, best, j->k, values, j->indices + at);
        }
    }
}

int HT_KERNEL(topk)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 2 || call->num_ints != 5)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0];
    ht_tensor *values = call->out[0], *indices = call->out[1];
    const int64_t outer = call->ints[0], n = call->ints[1], inner = call->ints[2], k = call->ints[3];
    if (outer < 0 || inner < 0 || k < 0 || k > n || x->size != outer * n * inner || values->size != outer * k * inner ||
        indices->size != values->size || values->dtype != x->dtype || indices->dtype != HT_INT64)
        return HT_ERR_OPERAND;
    if (values->size == 0)
        return HT_OK;
    job j = {.call = call, .x = x->data, .values = values->data, .indices = indices->data, .n = n, .inner = inner, .k = k};
    j.bytes = ht_element_bytes(x->dtype);
    j.largest = call->ints[4] != 0;
    switch (x->dtype) {
#define CASE(D, s, T, U) case D: j.heap = heap_##s, j.keys = keys_##s; break;
        HT_NUMERIC_TYPES(CASE)
    default: return HT_ERR_DTYPE;
    }
    j.pick = j.bytes == 1 ? pick_1 : j.bytes == 2 ? pick_2 : j.bytes == 4 ? pick_4 : pick_8;
    j.columns = ht_min64(inner, COLUMNS);
    if (call->scratch_bytes < 8 * k)
        return HT_ERR_OPERAND;
    j.by_heap = n > HT_TOPK_MOST_KEYS || call->scratch_bytes < ht_scratch_topk(n, k, inner, j.bytes);
    j.units = outer * ht_ceil_div(inner, j.columns);
    j.parts = ht_parts(call, j.units, (double)x->size * 4);
    ht_parallel(call->team, j.parts, select_part, &j);
    return HT_OK;
}
