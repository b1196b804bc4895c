/* topk: the k largest or smallest elements along an axis, best first; of equal ones the lower index comes first.
 *
 * Operands: in x[outer][n][inner]; out values[outer][k][inner] of x's dtype (numeric), indices (the same, int64).
 * Parameters: ints = outer, n, inner, k (0 <= k <= n), largest. NaN counts as the largest. Scratch:
 * (4 * min(inner, 8) + 8) * n + 16 * k + 512 bytes; for elements of 8 bytes 8 * k. Same result in every instruction set;
 * threads take rows.
 *
 * Elements of up to 4 bytes become keys, 32-bit integers of the same order, of which larger is better. The k-th best key is
 * found by bisection: counting the keys from some value on is a plain vector loop, at worst 32 of them. Few keys take part
 * in it: lane by lane, rows of keys are folded into 2 k or more maxima, and what is below the k-th best of those is not
 * among the k best of all. Then the k chosen are sorted. O(n + k log k), whatever the data.
 * Elements of 8 bytes go through a heap of the k best so far, its worst on top: O(n log k), O(n) where the rest is never
 * better.
 */
#include "elements.h"
#include "vec.h"

enum { LANES = 64, FEW = 40, SHORT = 160, SHORT_BEST = 8, SORTED_WHOLE = 20, COLUMNS = 8 };

/* ---- keys of up to four bytes */

#define FLOAT_KEY(v) float_key(v)
#define SIGNED_KEY(v) ((int32_t)(v))
#define UNSIGNED_KEY(v) ((int32_t)((uint32_t)(v) ^ 0x80000000u))

HT_INLINE int32_t float_key(float v)
{
    int32_t bits;
    const float sum = v + 0.0f; /* -0 becomes 0, which it equals */
    memcpy(&bits, &sum, sizeof bits);
    return v != v ? INT32_MAX : bits ^ (bits >> 31 & INT32_MAX);
}

/* Of `columns` rows side by side, one after the other. flip: -1 where smaller is better, else 0. */
#define DEFINE_KEYS(s, T, KEY)                                                                                      \
    static void keys_##s(const void *from, int64_t inner, int64_t columns, int64_t n, int32_t flip, int32_t *keys)  \
    {                                                                                                               \
        const T *x = (const T *)from;                                                                               \
        if (inner == 1)                                                                                             \
            for (int64_t i = 0; i < n; i++)                                                                         \
                keys[i] = KEY(x[i]) ^ flip;                                                                         \
        else                                                                                                        \
            for (int64_t i = 0; i < n; i++)                                                                         \
                for (int64_t column = 0; column < columns; column++)                                                \
                    keys[column * n + i] = KEY(x[i * inner + column]) ^ flip;                                       \
    }
DEFINE_KEYS(f32, float, FLOAT_KEY)
DEFINE_KEYS(i8, int8_t, SIGNED_KEY)
DEFINE_KEYS(i16, int16_t, SIGNED_KEY)
DEFINE_KEYS(i32, int32_t, SIGNED_KEY)
DEFINE_KEYS(u8, uint8_t, SIGNED_KEY)
DEFINE_KEYS(u16, uint16_t, SIGNED_KEY)
DEFINE_KEYS(u32, uint32_t, UNSIGNED_KEY)

typedef void (*keys_fn)(const void *from, int64_t inner, int64_t columns, int64_t n, int32_t flip, int32_t *keys);

/* NULL for elements of eight bytes. */
static keys_fn keys_of(int32_t dtype)
{
    switch (dtype) {
    case HT_FLOAT32: return keys_f32;
    case HT_INT8: return keys_i8;
    case HT_INT16: return keys_i16;
    case HT_INT32: return keys_i32;
    case HT_UINT8: return keys_u8;
    case HT_UINT16: return keys_u16;
    case HT_UINT32: return keys_u32;
    default: return NULL;
    }
}

static int32_t count_from(const int32_t *keys, int32_t n, int32_t least)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        count += keys[i] >= least;
    return count;
}

static int32_t count_beyond(const int32_t *keys, int32_t n, int32_t bound)
{
    int32_t count = 0;
    for (int32_t i = 0; i < n; i++)
        count += keys[i] > bound;
    return count;
}

/* A value from which on there are k keys, or the largest one from which on there are more. 0 < k <= n. */
static int32_t bound_of(const int32_t *keys, int32_t n, int32_t k)
{
    int32_t low = INT32_MAX, high = INT32_MIN; /* at least k keys from low on, fewer beyond high */
    for (int32_t i = 0; i < n; i++) {
        low = keys[i] < low ? keys[i] : low;
        high = keys[i] > high ? keys[i] : high;
    }
    if (k == n)
        return low;
    if (count_from(keys, n, high) >= k)
        return high;
    while (low < high) {
        const int32_t middle = (int32_t)(low + (((int64_t)high - low + 1) >> 1)), count = count_from(keys, n, middle);
        if (count == k)
            return middle;
        if (count > k)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Where keys of at least `least` are. */
static int32_t places_from(const int32_t *keys, int32_t n, int32_t least, int32_t *places)
{
    enum { BLOCK = 32 };
    int32_t found = 0, i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        int any = 0;
        for (int j = 0; j < BLOCK; j++)
            any |= keys[i + j] >= least;
        for (int j = 0; any && j < BLOCK; j++) {
            places[found] = i + j;
            found += keys[i + j] >= least;
        }
    }
    for (; i < n; i++) {
        places[found] = i;
        found += keys[i] >= least;
    }
    return found;
}

/* A key and its place in one number: the larger, the better. */
HT_INLINE uint64_t item_of(int32_t key, int32_t place)
{
    return (uint64_t)((uint32_t)key ^ 0x80000000u) << 32 | (uint32_t)~place;
}

/* Best first. `items` come in the order of their places; `spare` has as much room. Returns where they are then. */
static uint64_t *sort_items(uint64_t *items, uint64_t *spare, int32_t n)
{
    enum { DIGITS = 4, VALUES = 256 };
    if (n <= FEW) {
        for (int32_t i = 1; i < n; i++) {
            const uint64_t item = items[i];
            int32_t at = i;
            for (; at > 0 && items[at - 1] < item; at--)
                items[at] = items[at - 1];
            items[at] = item;
        }
        return items;
    }
    int32_t counts[DIGITS][VALUES] = {0}; /* by the digits of the key, the last first: stable, so places stay in order */
    for (int32_t i = 0; i < n; i++)
        for (int digit = 0; digit < DIGITS; digit++)
            counts[digit][items[i] >> (32 + 8 * digit) & (VALUES - 1)]++;
    for (int digit = 0; digit < DIGITS; digit++) {
        int32_t *count = counts[digit], before = 0;
        if (count[items[0] >> (32 + 8 * digit) & (VALUES - 1)] == n)
            continue;
        for (int value = VALUES - 1; value >= 0; value--) {
            const int32_t here = count[value];
            count[value] = before;
            before += here;
        }
        for (int32_t i = 0; i < n; i++)
            spare[count[items[i] >> (32 + 8 * digit) & (VALUES - 1)]++] = items[i];
        uint64_t *sorted = spare;
        spare = items;
        items = sorted;
    }
    return items;
}

/* All keys above `least`, fewer than k or k, and the first of those equal to it: k items in all. places: NULL where key i
 * is of place i. */
static int32_t take(const int32_t *keys, const int32_t *places, int32_t n, int32_t least, int32_t k, uint64_t *items)
{
    int32_t equal = k - count_beyond(keys, n, least), taken = 0;
    for (int32_t i = 0; taken < k; i++) {
        const int takes = keys[i] > least || (keys[i] == least && equal > 0);
        items[taken] = item_of(keys[i], places ? places[i] : i);
        taken += takes;
        equal -= takes && keys[i] == least;
    }
    return k;
}

/* The k best of n keys, best first, as items. scratch: 8 * n + 16 * k + 320 bytes. */
static const uint64_t *best_of(const int32_t *keys, int32_t n, int32_t k, void *scratch)
{
    const int32_t most = k > SORTED_WHOLE ? k : SORTED_WHOLE;
    uint64_t *items = (uint64_t *)scratch, *spare = items + most;
    int32_t *places = (int32_t *)(spare + most), *chosen = places + n;
    if (n <= SHORT && k <= SHORT_BEST) { /* the best so far, in order */
        uint64_t best[SHORT_BEST] = {0};
        for (int32_t i = 0; i < k; i++)
            best[i] = item_of(keys[i], i);
        uint64_t *const sorted = sort_items(best, spare, k);
        int32_t worst = keys[(uint32_t)~sorted[k - 1]];
        for (int32_t i = k; i < n; i++) {
            if (keys[i] <= worst)
                continue;
            const uint64_t item = item_of(keys[i], i);
            int32_t at = k - 1;
            for (; at > 0 && best[at - 1] < item; at--)
                best[at] = best[at - 1];
            best[at] = item;
            worst = keys[(uint32_t)~best[k - 1]];
        }
        memcpy(items, best, sizeof best);
        return items;
    }
    if (n <= SORTED_WHOLE) {
        for (int32_t i = 0; i < n; i++)
            items[i] = item_of(keys[i], i);
        return sort_items(items, spare, n);
    }
    const int64_t groups = (2 * (int64_t)k + LANES - 1) / LANES * LANES;
    int32_t found = n;
    if (2 * groups <= n) {
        int32_t *maxima = chosen; /* which are filled after */
        memcpy(maxima, keys, (size_t)groups * sizeof *keys);
        for (int64_t i = groups; i < n; i += groups) {
            const int64_t count = ht_min64(groups, n - i);
            for (int64_t j = 0; j < count; j++)
                maxima[j] = keys[i + j] > maxima[j] ? keys[i + j] : maxima[j];
        }
        const int32_t bound = bound_of(maxima, (int32_t)groups, k);
        if (count_from(keys, n, bound) > 4 * groups && count_beyond(keys, n, bound) < k) /* many are equal to it */
            return sort_items(items, spare, take(keys, NULL, n, bound, k, items));
        found = places_from(keys, n, bound, places);
        for (int32_t i = 0; i < found; i++)
            chosen[i] = keys[places[i]];
    } else {
        memcpy(chosen, keys, (size_t)n * sizeof *keys);
        for (int32_t i = 0; i < n; i++)
            places[i] = i;
    }
    return sort_items(items, spare, take(chosen, places, found, bound_of(chosen, found, k), k, items));
}

#define DEFINE_SMALL(s, T)                                                                                          \
    static void pick_##s(const void *from, int64_t inner, const uint64_t *items, int64_t k, void *to, int64_t *indices) \
    {                                                                                                               \
        const T *x = (const T *)from;                                                                               \
        T *values = (T *)to;                                                                                        \
        for (int64_t i = 0; i < k; i++) {                                                                           \
            const int64_t place = (int64_t)(uint32_t)~items[i];                                                     \
            values[i * inner] = x[place * inner];                                                                   \
            indices[i * inner] = place;                                                                             \
        }                                                                                                           \
    }
DEFINE_SMALL(1, uint8_t)
DEFINE_SMALL(2, uint16_t)
DEFINE_SMALL(4, uint32_t)

typedef void (*pick_fn)(const void *from, int64_t inner, const uint64_t *items, int64_t k, void *to, int64_t *indices);

/* ---- elements of eight bytes, and rows too long for places of 32 bits */

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
    /* Let the element at the top sink to its place: every parent comes after its children. */                      \
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
    static void heap_##s(const void *from, int64_t n, int64_t inner, int64_t k, int largest, void *to,              \
                         int64_t *indices, int64_t *heap)                                                           \
    {                                                                                                               \
        const T *x = (const T *)from;                                                                               \
        T *values = (T *)to;                                                                                        \
        for (int64_t i = 0; i < k; i++)                                                                             \
            heap[i] = i;                                                                                            \
        for (int64_t i = k / 2; i-- > 0;)                                                                           \
            sink_##s(x, inner, heap, k, i, largest);                                                                \
        for (int64_t i = k, end; i < n; i = end) {                                                                  \
            enum { BLOCK = 16 };                                                                                    \
            const T bar = x[heap[0] * inner];                                                                       \
            end = ht_min64(i + BLOCK, n);                                                                           \
            int any = end - i < BLOCK || inner != 1;                                                                \
            if (!any) { /* the usual case: none is better than the worst so far; a later equal is no better */      \
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
                    heap[0] = i;                                                                                    \
                    sink_##s(x, inner, heap, k, 0, largest);                                                        \
                }                                                                                                   \
            }                                                                                                       \
        }                                                                                                           \
        for (int64_t size = k; size > 0; size--) { /* the worst of those left goes to the end */                    \
            indices[(size - 1) * inner] = heap[0];                                                                  \
            values[(size - 1) * inner] = x[heap[0] * inner];                                                        \
            heap[0] = heap[size - 1];                                                                               \
            sink_##s(x, inner, heap, size - 1, 0, largest);                                                         \
        }                                                                                                           \
    }
#define HEAP_OF(D, s, T, U) DEFINE_HEAP(s, T)
HT_NUMERIC_TYPES(HEAP_OF)

typedef void (*heap_fn)(const void *from, int64_t n, int64_t inner, int64_t k, int largest, void *to, int64_t *indices,
                        int64_t *heap);

/* ---- the call */

typedef struct {
    const ht_call *call;
    const char *x;
    char *values;
    int64_t *indices;
    int64_t bytes, n, inner, k, units, parts;
    int64_t columns; /* rows that are taken side by side */
    int largest;
    keys_fn keys;
    pick_fn pick;
    heap_fn heap; /* where there are no keys */
} job;

static void select_part(void *context, int64_t part, int thread)
{
    const job *j = (const job *)context;
    int32_t *keys = (int32_t *)ht_scratch(j->call, thread);
    void *scratch = (char *)keys + (4 * j->columns * j->n + 7) / 8 * 8;
    const int64_t blocks = ht_ceil_div(j->inner, j->columns), end = ht_part_begin(j->units, j->parts, part + 1);
    for (int64_t unit = ht_part_begin(j->units, j->parts, part); unit < end; unit++) {
        const int64_t outer = unit / blocks, first = unit % blocks * j->columns;
        const int64_t columns = ht_min64(j->columns, j->inner - first);
        const char *x = j->x + (outer * j->n * j->inner + first) * j->bytes;
        if (j->keys)
            j->keys(x, j->inner, columns, j->n, j->largest ? 0 : -1, keys);
        for (int64_t column = 0; column < columns; column++) {
            const int64_t at = outer * j->k * j->inner + first + column;
            const char *row = x + column * j->bytes;
            char *values = j->values + at * j->bytes;
            if (j->keys)
                j->pick(row, j->inner, best_of(keys + column * j->n, (int32_t)j->n, (int32_t)j->k, scratch), j->k, values,
                        j->indices + at);
            else
                j->heap(row, j->n, j->inner, j->k, j->largest, values, j->indices + at, (int64_t *)keys);
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
#define CASE(D, s, T, U) case D: j.heap = heap_##s; break;
        HT_NUMERIC_TYPES(CASE)
    default: return HT_ERR_DTYPE;
    }
    j.keys = n > INT32_MAX / 2 ? NULL : keys_of(x->dtype);
    j.pick = j.bytes == 1 ? pick_1 : j.bytes == 2 ? pick_2 : pick_4;
    j.columns = ht_min64(inner, COLUMNS);
    if (call->scratch_bytes < (j.keys ? (4 * j.columns + 8) * n + 16 * k + 512 : 8 * k))
        return HT_ERR_OPERAND;
    j.units = outer * ht_ceil_div(inner, j.columns);
    j.parts = ht_parts(call, j.units, (double)x->size * 4);
    ht_parallel(call->team, j.parts, select_part, &j);
    return HT_OK;
}
