/* Resampling along one axis of x[outer][size][inner]; an image is resized axis by axis.
 *
 *   resample   y[o][j][i] = sum over t of weight[t][j] * x[o][start[j] + t][i].  in x (float32 or float64), start[length]
 *              (int32), weight[taps][length] (x's dtype); out y[outer][length][inner].
 *              ints: outer, size, inner, length, taps.
 *   pick       y[o][j][i] = x[o][start[j]][column[i]].  in x (any dtype), start[length] (int32), then optionally
 *              column[width] (int32; by default column[i] = i); out y[outer][length][width].
 *              ints: outer, size, inner, length.
 *
 * Elements of weight 0 are skipped, so that NaN and infinity reach only the outputs that depend on them. A window that
 * leaves its axis gives HT_ERR_INDEX. Cost: taps multiplications per output. Along the innermost axis (inner = 1)
 * weights and starts are contiguous in the outputs, so that the loop over outputs vectorizes with gathers.
 */
#include "elements.h"
#include "vec.h"

#define DEFINE_RESAMPLE(T)                                                                                          \
    static void rows_##T(const T *x, const T *weight, T *y, int64_t inner, int64_t length, int64_t taps)            \
    {                                                                                                               \
        const T first = weight[0];                                                                                  \
        HT_LONG_FOR (i, inner)                                                                                      \
            y[i] = first != 0 ? first * x[i] : 0;                                                                   \
        for (int64_t t = 1; t < taps; t++) {                                                                        \
            const T w = weight[t * length];                                                                         \
            const T *row = x + t * inner;                                                                           \
            if (w != 0)                                                                                             \
                for (int64_t k = 0; k < inner && !ht_stops_at(k); k += HT_PIECE) {                                  \
                    const int64_t end = ht_min64(inner, k + HT_PIECE);                                              \
                    _Pragma("GCC ivdep") for (int64_t i = k; i < end; i++) y[i] += w * row[i];                      \
                }                                                                                                   \
        }                                                                                                           \
    }                                                                                                               \
    static void pairs_##T(const T *x, T a, T b, T *y, int64_t inner)                                                \
    {                                                                                                               \
        if (a == 0 || b == 0)                                                                                       \
            HT_LONG_FOR (i, inner)                                                                                  \
                y[i] = b == 0 ? a * x[i] : b * x[inner + i];                                                        \
        else                                                                                                        \
            for (int64_t k = 0; k < inner && !ht_stops_at(k); k += HT_PIECE) {                                      \
                const int64_t end = ht_min64(inner, k + HT_PIECE);                                                  \
                _Pragma("GCC ivdep") for (int64_t i = k; i < end; i++) y[i] = a * x[i] + b * x[inner + i];          \
            }                                                                                                       \
    }                                                                                                               \
    static inline T term_##T(T weight, T x) { return weight != 0 ? weight * x : 0; }                                 \
    static void line_##T(const T *HT_RESTRICT x, const int32_t *HT_RESTRICT start, const T *HT_RESTRICT weight,     \
                         T *HT_RESTRICT y, int64_t length, int64_t taps)                                            \
    {                                                                                                               \
        if (taps == 2) {                                                                                            \
            HT_LONG_FOR (j, length)                                                                                 \
                y[j] = term_##T(weight[j], x[start[j]]) + term_##T(weight[length + j], x[start[j] + 1]);            \
            return;                                                                                                 \
        }                                                                                                           \
        HT_LONG_FOR (j, length)                                                                                     \
            y[j] = term_##T(weight[j], x[start[j]]);                                                                \
        for (int64_t t = 1; t < taps; t++)                                                                          \
            HT_LONG_FOR (j, length)                                                                                 \
                y[j] += term_##T(weight[t * length + j], x[start[j] + t]);                                          \
    }                                                                                                               \
    static void resample_##T(const ht_call *call, int64_t begin, int64_t end)                                       \
    {                                                                                                               \
        const int64_t size = call->ints[1], inner = call->ints[2];                                                  \
        const int64_t length = call->ints[3], taps = call->ints[4];                                                 \
        const int32_t *start = (const int32_t *)call->in[1]->data;                                                  \
        const T *x = (const T *)call->in[0]->data + begin * size * inner, *weight = (const T *)call->in[2]->data;   \
        T *y = (T *)call->out[0]->data + begin * length * inner;                                                    \
        int64_t left = HT_PACE;                                                                                     \
        for (int64_t o = begin; o < end; o++, x += size * inner) {                                                  \
            if (inner == 1) {                                                                                       \
                if (ht_paced_stop(&left, taps * length))                                                            \
                    return;                                                                                         \
                line_##T(x, start, weight, y, length, taps);                                                        \
                y += length;                                                                                        \
                continue;                                                                                           \
            }                                                                                                       \
            for (int64_t j = 0; j < length; j++, y += inner) {                                                      \
                const T *from = x + start[j] * inner;                                                               \
                if (ht_paced_stop(&left, taps * inner))                                                             \
                    return;                                                                                         \
                if (taps == 2)                                                                                      \
                    pairs_##T(from, weight[j], weight[length + j], y, inner);                                       \
                else                                                                                                \
                    rows_##T(from, weight + j, y, inner, length, taps);                                             \
            }                                                                                                       \
        }                                                                                                           \
    }
DEFINE_RESAMPLE(float)
DEFINE_RESAMPLE(double)

static int inside(const ht_tensor *start, int64_t size, int64_t taps)
{
    HT_LONG_FOR (j, start->size) {
        const int64_t first = ((const int32_t *)start->data)[j];
        if (first < 0 || first > size - taps)
            return 0;
    }
    return 1;
}

/* Checks the operands that both share, and that all windows of `taps` elements lie within the axis. width: row length
 * of y. */
static int check(const ht_call *call, int num_ints, int64_t taps, int64_t width)
{
    if (call->num_out != 1 || call->num_ints != num_ints)
        return HT_ERR_OPERAND;
    const int64_t outer = call->ints[0], size = call->ints[1], inner = call->ints[2], length = call->ints[3];
    const ht_tensor *x = call->in[0], *start = call->in[1];
    if (outer < 0 || size < 0 || inner < 0 || length < 0 || taps < 1 || start->dtype != HT_INT32 ||
        start->size != length || call->out[0]->dtype != x->dtype || x->size != outer * size * inner ||
        call->out[0]->size != outer * length * width)
        return HT_ERR_OPERAND;
    return call->out[0]->size == 0 || inside(start, size, taps) ? HT_OK : HT_ERR_INDEX;
}

typedef struct {
    const ht_call *call;
    int64_t outer, parts;
} job;

static void resample_part(void *context, int64_t part, int thread)
{
    const job *j = (const job *)context;
    const int64_t begin = ht_part_begin(j->outer, j->parts, part), end = ht_part_begin(j->outer, j->parts, part + 1);
    (void)thread;
    if (j->call->in[0]->dtype == HT_FLOAT32)
        resample_float(j->call, begin, end);
    else
        resample_double(j->call, begin, end);
}

int HT_KERNEL(resample)(const ht_call *call)
{
    if (call->num_in != 3 || call->num_ints != 5)
        return HT_ERR_OPERAND;
    const int64_t taps = call->ints[4];
    const int status = check(call, 5, taps, call->ints[2]);
    if (status != HT_OK)
        return status;
    const ht_tensor *weight = call->in[2];
    if (weight->dtype != call->in[0]->dtype || weight->size != taps * call->ints[3])
        return HT_ERR_OPERAND;
    if (weight->dtype != HT_FLOAT32 && weight->dtype != HT_FLOAT64)
        return HT_ERR_DTYPE;
    if (call->out[0]->size == 0)
        return HT_OK;
    job j = {call, call->ints[0], ht_parts(call, call->ints[0], 4 * (double)taps * (double)call->out[0]->size)};
    ht_parallel(call->team, j.parts, resample_part, &j);
    return HT_OK;
}

/* Whether the columns are those of a row of twice the width, 0 0 1 1 2 2 ...: then the row is doubled without reading
 * them. */
static int are_doubled(const int32_t *column, int64_t width)
{
    HT_LONG_FOR (i, width)
        if (column[i] != i / 2)
            return 0;
    return width % 2 == 0;
}

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t bytes16_of_2 __attribute__((vector_size(16)));
typedef uint64_t bytes16_of_8 __attribute__((vector_size(16)));

/* Stores each element of a vector twice, as two vectors, in two places. */
#define BOTH(y, z, low, high)                                                                                       \
    memcpy(y, &low, sizeof low);                                                                                    \
    memcpy((char *)(y) + sizeof low, &high, sizeof high);                                                           \
    memcpy(z, &low, sizeof low);                                                                                    \
    memcpy((char *)(z) + sizeof low, &high, sizeof high)
#define PAIR_LANES_uint8_t 16
#define PAIR_LANES_uint16_t 8
#define PAIR_LANES_uint32_t VF_LANES
#define PAIR_LANES_uint64_t 2
HT_INLINE void pairs_uint8_t(const uint8_t *x, uint8_t *y, uint8_t *z)
{
    bytes16 v;
    memcpy(&v, x, sizeof v);
    const bytes16 low = HT_SHUFFLE(bytes16, v, v, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const bytes16 high = HT_SHUFFLE(bytes16, v, v, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    BOTH(y, z, low, high);
}
HT_INLINE void pairs_uint16_t(const uint16_t *x, uint16_t *y, uint16_t *z)
{
    bytes16_of_2 v;
    memcpy(&v, x, sizeof v);
    const bytes16_of_2 low = HT_SHUFFLE(bytes16_of_2, v, v, 0, 8, 1, 9, 2, 10, 3, 11);
    const bytes16_of_2 high = HT_SHUFFLE(bytes16_of_2, v, v, 4, 12, 5, 13, 6, 14, 7, 15);
    BOTH(y, z, low, high);
}
HT_INLINE void pairs_uint32_t(const uint32_t *x, uint32_t *y, uint32_t *z)
{
    vf v;
    memcpy(&v, x, sizeof v);
    const vf low = vf_zip_low(v, v);
    const vf high = vf_zip_high(v, v);
    BOTH(y, z, low, high);
}
HT_INLINE void pairs_uint64_t(const uint64_t *x, uint64_t *y, uint64_t *z)
{
    bytes16_of_8 v;
    memcpy(&v, x, sizeof v);
    const bytes16_of_8 low = HT_SHUFFLE(bytes16_of_8, v, v, 0, 2);
    const bytes16_of_8 high = HT_SHUFFLE(bytes16_of_8, v, v, 1, 3);
    BOTH(y, z, low, high);
}

/* Writes a row to y, and also to z if that differs. */
#define DEFINE_PICK(T)                                                                                              \
    static void pick_##T(const void *from, const int32_t *HT_RESTRICT column, void *to, void *also, int64_t width,  \
                         int twice)                                                                                 \
    {                                                                                                               \
        enum { LANES = PAIR_LANES_##T };                                                                            \
        const T *x = (const T *)from;                                                                               \
        T *y = (T *)to, *z = (T *)also;                                                                             \
        if (twice && width >= 2 * LANES) { /* the last vector overlaps the one before */                            \
            for (int64_t i = 0; i < width / 2; i += LANES) {                                                        \
                const int64_t at = ht_min64(i, width / 2 - LANES);                                                  \
                if (ht_stops_at(i))                                                                                 \
                    return;                                                                                         \
                pairs_##T(x + at, y + 2 * at, z + 2 * at);                                                          \
            }                                                                                                       \
            return;                                                                                                 \
        }                                                                                                           \
        if (twice)                                                                                                  \
            for (int64_t i = 0; i < width / 2; i++)                                                                 \
                y[2 * i] = y[2 * i + 1] = x[i];                                                                     \
        else                                                                                                        \
            for (int64_t k = 0; k < width && !ht_stops_at(k); k += HT_PIECE) {                                      \
                const int64_t end = ht_min64(width, k + HT_PIECE);                                                  \
                _Pragma("GCC ivdep") for (int64_t i = k; i < end; i++) y[i] = x[column[i]];                         \
            }                                                                                                       \
        if (z != y)                                                                                                 \
            ht_long_copy(z, y, width * (int64_t)sizeof(T));                                                         \
    }
DEFINE_PICK(uint8_t)
DEFINE_PICK(uint16_t)
DEFINE_PICK(uint32_t)
DEFINE_PICK(uint64_t)

static void pick_part(void *context, int64_t part, int thread)
{
    const job *j = (const job *)context;
    const ht_call *call = j->call;
    const int64_t begin = ht_part_begin(j->outer, j->parts, part), end = ht_part_begin(j->outer, j->parts, part + 1);
    const int64_t size = call->ints[1], inner = call->ints[2], length = call->ints[3];
    const int64_t width = call->num_in == 3 ? call->in[2]->size : inner, bytes = ht_element_bytes(call->in[0]->dtype);
    const int32_t *start = (const int32_t *)call->in[1]->data;
    const int32_t *column = call->num_in == 3 ? (const int32_t *)call->in[2]->data : NULL;
    const int twice = column && are_doubled(column, width);
    int64_t left = HT_PACE;
    (void)thread;
    for (int64_t o = begin; o < end; o++) {
        const char *x = (const char *)call->in[0]->data + o * size * inner * bytes;
        char *y = (char *)call->out[0]->data + o * length * width * bytes;
        for (int64_t k = 0; k < length; k++, y += width * bytes) {
            const char *row = x + start[k] * inner * bytes;
            if (ht_paced_stop(&left, width))
                return;
            const int same = column && k + 1 < length && start[k + 1] == start[k]; /* two rows at once */
            char *also = same ? y + width * bytes : y;
            if (k > 0 && start[k] == start[k - 1])
                ht_long_copy(y, y - width * bytes, width * bytes);
            else if (!column)
                ht_long_copy(y, row, width * bytes);
            else {
                if (bytes == 4)
                    pick_uint32_t(row, column, y, also, width, twice);
                else if (bytes == 1)
                    pick_uint8_t(row, column, y, also, width, twice);
                else if (bytes == 2)
                    pick_uint16_t(row, column, y, also, width, twice);
                else
                    pick_uint64_t(row, column, y, also, width, twice);
                k += same;
                y += same ? width * bytes : 0;
            }
        }
    }
}

int HT_KERNEL(pick)(const ht_call *call)
{
    if (call->num_in < 2 || call->num_in > 3 || call->num_ints != 4)
        return HT_ERR_OPERAND;
    const ht_tensor *column = call->num_in == 3 ? call->in[2] : NULL;
    if (column && column->dtype != HT_INT32)
        return HT_ERR_OPERAND;
    const int status = check(call, 4, 1, column ? column->size : call->ints[2]);
    if (status != HT_OK)
        return status;
    if (ht_element_bytes(call->in[0]->dtype) == 0)
        return HT_ERR_DTYPE;
    if (call->out[0]->size == 0)
        return HT_OK;
    if (column && !inside(column, call->ints[2], 1))
        return HT_ERR_INDEX;
    job j = {call, call->ints[0], ht_parts(call, call->ints[0], 8 * (double)call->out[0]->size)};
    ht_parallel(call->team, j.parts, pick_part, &j);
    return HT_OK;
}
