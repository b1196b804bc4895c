/* arg_extreme: the position of the largest or smallest entry along an axis. hardmax: 1 at the first of the largest, 0 elsewhere.
 *
 * Operands: in x[outer][n][inner], n > 0; out int64[outer][inner]. Parameters: ints = outer, n, inner, minimum, last (of
 * equals). float32, float64, int32, int64, int8, uint8. A NaN counts as extreme.
 * hardmax: in x as above; out as x, which it may not overlap. ints = outer, n, inner. float32, float64.
 *
 * Contiguous rows are read twice by plain vector loops: once to find the extreme, once to find its position. Other rows
 * are processed side by side, each with its extreme and position so far. Threads take rows.
 */
#include "elements.h"
#include "rows.h"

/* `width` neighboring results: of rows that follow each other if inner is 1. */
typedef void arg_fn(const void *x, int64_t n, int64_t inner, int64_t width, int64_t *out, int minimum, int last);

enum {
    SIDE_BY_SIDE = 128, /* columns walked together: their extremes so far fill at most 1 kB on the stack */
    BLOCK = 64,         /* elements compared without a branch before the search looks whether one matched */
    ROWS = 16,          /* contiguous rows of a unit of work for threads */
    SHORT = 32,         /* elements; rows up to here are read once */
    KEYED = 8           /* elements; shorter rows of float32 take a branch for each element, as do other types */
};

/* Whether `value` replaces `top`. */
#define BETTER(minimum, last, value, top)                                                                             \
    ((minimum ? (last ? (value) <= (top) : (value) < (top)) : (last ? (value) >= (top) : (value) > (top))) ||         \
     ((value) != (value) && (last || (top) == (top))))

#define EXTREME(minimum, value, top) ((minimum ? (value) < (top) : (value) > (top)) ? (value) : (top))

#define DEFINE_FIND(name, type, condition)                                                                            \
    static int64_t name(const type *x, int64_t n, const type extreme, int last)                                       \
    {                                                                                                                 \
        (void)extreme;                                                                                                \
        for (int64_t done = 0; done < n; done += BLOCK) {                                                             \
            if (ht_stops_at(done))                                                                                    \
                break;                                                                                                \
            const int64_t count = ht_min64(BLOCK, n - done), begin = last ? n - done - count : done;                  \
            int any = 0;                                                                                              \
            for (int64_t i = begin; i < begin + count; i++)                                                           \
                any |= condition;                                                                                     \
            if (!any)                                                                                                 \
                continue;                                                                                             \
            int first = BLOCK, final = -1; /* within the block, without a branch for each */                          \
            for (int k = 0; k < (int)count; k++) {                                                                    \
                const int64_t i = begin + k;                                                                          \
                first = (condition) && k < first ? k : first;                                                         \
                final = (condition) ? k : final;                                                                      \
            }                                                                                                         \
            return begin + (last ? final : first);                                                                    \
        }                                                                                                             \
        return 0;                                                                                                     \
    }

#define DEFINE_LONG(suffix, type)                                                                                     \
    HT_INLINE int64_t long_##suffix(const type *x, int64_t n, const int minimum, int last)                            \
    {                                                                                                                 \
        enum { PARTS = 64 / sizeof(type) };                                                                           \
        type part[PARTS], best = x[0];                                                                                \
        int nan[PARTS] = {0};                                                                                         \
        for (int j = 0; j < PARTS; j++)                                                                               \
            part[j] = best;                                                                                           \
        int64_t i = 0;                                                                                                \
        HT_LONG_STEPS(i, PARTS, n)                                                                                    \
            for (int j = 0; j < PARTS; j++) {                                                                         \
                part[j] = EXTREME(minimum, x[i + j], part[j]);                                                        \
                nan[j] |= x[i + j] != x[i + j];                                                                       \
            }                                                                                                         \
        for (; i < n; i++) {                                                                                          \
            part[0] = EXTREME(minimum, x[i], part[0]);                                                                \
            nan[0] |= x[i] != x[i];                                                                                   \
        }                                                                                                             \
        for (int j = 0; j < PARTS; j++) {                                                                             \
            if (nan[j])                                                                                               \
                return find_nan_##suffix(x, n, best, last);                                                           \
            best = EXTREME(minimum, part[j], best);                                                                   \
        }                                                                                                             \
        return find_##suffix(x, n, best, last);                                                                       \
    }

#define DEFINE_FINDS(suffix, type)                                                                                    \
    DEFINE_FIND(find_##suffix, type, x[i] == extreme)                                                                 \
    DEFINE_FIND(find_nan_##suffix, type, x[i] != x[i])

/* For float32: each lane of `best` holds the place of the last match that this lane has met. `nan`: finds a NaN instead of
 * `extreme`. */
HT_INLINE int64_t find_f32(const float *x, int64_t n, float extreme, int last, const int nan)
{
    static const float numbers[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const vf lanes = vf_load(numbers), none = vf_set1(last ? -1.0f : BLOCK), other = vf_set1(nan ? 0.0f : NAN);
    for (int64_t done = 0; done < n && !ht_stops_at(done); done += BLOCK) {
        const int64_t count = ht_min64(BLOCK, n - done), begin = last ? n - done - count : done;
        const int64_t vectors = ht_ceil_div(count, VF_LANES);
        vf best = none;
        for (int64_t i = 0; i < vectors; i++) {
            const int64_t k = (last ? i : vectors - 1 - i) * VF_LANES;
            const float *from = x + begin + k;
            const vf v = count - k >= VF_LANES ? vf_load(from) : vf_load_or(from, 0, count - k, other);
            best = vf_select(nan ? vf_isnan(v) : vf_eq(v, vf_set1(extreme)), lanes + vf_set1((float)k), best);
        }
        if (vm_any(last ? vf_lt(none, best) : vf_lt(best, none)))
            return begin + (int64_t)(last ? vf_hmax_(best) : vf_hmin_(best));
    }
    return 0;
}
HT_INLINE int64_t long_f32(const float *x, int64_t n, const int minimum, int last)
{
    const float extreme = minimum ? ht_row_min(x, n) : ht_row_max(x, n, 1);
    return extreme != extreme ? find_f32(x, n, extreme, last, 1) : find_f32(x, n, extreme, last, 0);
}
/* Without a branch: finds the largest of 64-bit keys. The upper half of a key is the number's bits, changed so that integers
 * are in the order of the numbers; the lower half is the place. Adding zero makes -0 equal to 0. */
HT_INLINE int64_t keyed_f32(const float *x, int64_t n, const int minimum, const int last)
{
    int64_t best = INT64_MIN;
    for (int64_t i = 0; i < n; i++) {
        const float value = x[i] + 0.0f;
        int32_t bits;
        memcpy(&bits, &value, sizeof bits);
        bits ^= (bits >> 31) & INT32_MAX;
        bits = value != value ? INT32_MAX : minimum ? ~bits : bits;
        const int64_t key = bits * ((int64_t)1 << 32) + (last ? i : INT32_MAX - i);
        best = best > key ? best : key;
    }
    return last ? best & INT32_MAX : INT32_MAX - (best & INT32_MAX);
}
#define DEFINE_SHORT(name, type)                                                                                      \
    HT_INLINE int64_t name(const type *x, int64_t n, const int minimum, const int last)                               \
    {                                                                                                                 \
        type top = x[0];                                                                                              \
        int64_t best = 0;                                                                                             \
        for (int64_t i = 1; i < n; i++)                                                                               \
            if (BETTER(minimum, last, x[i], top)) {                                                                   \
                top = x[i];                                                                                           \
                best = i;                                                                                             \
            }                                                                                                         \
        return best;                                                                                                  \
    }
DEFINE_SHORT(few_f32, float)
HT_INLINE int64_t short_f32(const float *x, int64_t n, const int minimum, const int last)
{
    return n < KEYED ? few_f32(x, n, minimum, last) : keyed_f32(x, n, minimum, last);
}
/* CALL(arguments, minimum, last): a copy of the function for each pair, or one for all. */
#define SPECIALIZED(call, ...)                                                                                        \
    {                                                                                                                 \
        if (minimum && last)                                                                                          \
            call(__VA_ARGS__, 1, 1);                                                                                  \
        else if (minimum)                                                                                             \
            call(__VA_ARGS__, 1, 0);                                                                                  \
        else if (last)                                                                                                \
            call(__VA_ARGS__, 0, 1);                                                                                  \
        else                                                                                                          \
            call(__VA_ARGS__, 0, 0);                                                                                  \
    }
#define GENERAL(call, ...) call(__VA_ARGS__, minimum, last);

#define DEFINE_ARG(linkage, name, suffix, type, EACH)                                                                 \
    HT_INLINE void columns_##suffix(const type *x, int64_t n, int64_t inner, int64_t width, int64_t *out,             \
                                    const int minimum, const int last)                                                \
    {                                                                                                                 \
        type top[SIDE_BY_SIDE];                                                                                       \
        for (int64_t j = 0; j < width; j++) {                                                                         \
            top[j] = x[j];                                                                                            \
            out[j] = 0;                                                                                               \
        }                                                                                                             \
        int64_t left = HT_PACE;                                                                                       \
        for (int64_t i = 1; i < n && !ht_paced_stop(&left, width); i++) {                                             \
            const type *row = x + i * inner;                                                                          \
            for (int64_t j = 0; j < width; j++) {                                                                     \
                const int better = BETTER(minimum, last, row[j], top[j]);                                             \
                out[j] = better ? i : out[j];                                                                         \
                top[j] = better ? row[j] : top[j];                                                                    \
            }                                                                                                         \
        }                                                                                                             \
    }                                                                                                                 \
    linkage void name(const void *from, int64_t n, int64_t inner, int64_t width, int64_t *out, int minimum, int last) \
    {                                                                                                                 \
        const type *x = (const type *)from;                                                                           \
        if (inner == 1 && n <= SHORT)                                                                                 \
            for (int64_t row = 0; row < width; row++, x += n)                                                         \
                EACH(out[row] = short_##suffix, x, n)                                                                 \
        else if (inner == 1)                                                                                          \
            for (int64_t row = 0; row < width; row++, x += n)                                                         \
                out[row] = minimum ? long_##suffix(x, n, 1, last) : long_##suffix(x, n, 0, last);                     \
        else                                                                                                          \
            EACH(columns_##suffix, x, n, inner, width, out)                                                           \
    }

DEFINE_ARG(static, arg_f32, f32, float, SPECIALIZED)

#define RARE(suffix, type)                                                                                            \
    DEFINE_FINDS(suffix, type)                                                                                        \
    DEFINE_LONG(suffix, type)                                                                                         \
    DEFINE_SHORT(short_##suffix, type)                                                                                \
    DEFINE_ARG(, arg_##suffix, suffix, type, GENERAL)
#define arg_f64 HT_NARROWED(arg_f64)
#define arg_i32 HT_NARROWED(arg_i32)
#define arg_i64 HT_NARROWED(arg_i64)
#define arg_i8 HT_NARROWED(arg_i8)
#define arg_u8 HT_NARROWED(arg_u8)
arg_fn arg_f64, arg_i32, arg_i64, arg_i8, arg_u8;
#if HT_DEFINES_NARROWED
RARE(f64, double)
RARE(i32, int32_t)
RARE(i64, int64_t)
RARE(i8, int8_t)
RARE(u8, uint8_t)
#endif

typedef struct {
    const char *x;
    int64_t *out;  /* NULL: hardmax */
    char *one_hot;
    int64_t bytes, outer, n, inner, rows, blocks, units, parts; /* rows, blocks: a unit is so much of outer, of inner */
    int minimum, last;
    arg_fn *arg;
} job;

/* The rows or columns of a unit, all 0 but the element at its place: `y` is the first of them. */
static void write_one_hot(const job *j, char *y, int64_t width, const int64_t *places)
{
    /* Contiguous rows are cleared as one. */
    const int64_t lines = j->inner == 1 ? 1 : j->n, run = j->inner == 1 ? width * j->n : width;
    const int64_t to_next = j->inner == 1 ? j->n : 1, to_entry = j->inner;
    enum { MOST = HT_PIECE * 8 }; /* bytes between two checks whether the run must stop */
    int64_t left = HT_PACE;
    for (int64_t i = 0; i < lines && !ht_paced_stop(&left, run); i++)
        for (int64_t done = 0; done < run * j->bytes && !ht_stops_at(done); done += MOST)
            memset(y + i * to_entry * j->bytes + done, 0, (size_t)ht_min64(MOST, run * j->bytes - done));
    if (j->bytes == 4)
        for (int64_t k = 0; k < width; k++)
            ((float *)y)[k * to_next + places[k] * to_entry] = 1;
    else
        for (int64_t k = 0; k < width; k++)
            ((double *)y)[k * to_next + places[k] * to_entry] = 1;
}

static void arg_part(void *context, int64_t part, int thread)
{
    const job *j = (const job *)context;
    const int64_t end = ht_part_begin(j->units, j->parts, part + 1);
    (void)thread;
    for (int64_t unit = ht_part_begin(j->units, j->parts, part); unit < end; unit++) {
        const int64_t outer = unit / j->blocks * j->rows, first = unit % j->blocks * SIDE_BY_SIDE;
        const int64_t width = j->inner == 1 ? ht_min64(ROWS, j->outer - outer) : ht_min64(SIDE_BY_SIDE, j->inner - first);
        const int64_t from = (outer * j->n * j->inner + first) * j->bytes;
        int64_t places[SIDE_BY_SIDE];
        j->arg(j->x + from, j->n, j->inner, width, j->out ? j->out + outer * j->inner + first : places, j->minimum, j->last);
        if (!j->out)
            write_one_hot(j, j->one_hot + from, width, places);
    }
}

static int run(const ht_call *call, job *j)
{
    const ht_tensor *x = call->in[0];
    j->x = x->data;
    j->bytes = ht_element_bytes(x->dtype);
    j->blocks = ht_ceil_div(j->inner, SIDE_BY_SIDE);
    j->rows = j->inner == 1 ? ROWS : 1;
    j->units = ht_ceil_div(j->outer, j->rows) * j->blocks;
    j->parts = ht_parts(call, j->units, 4 * (double)x->size);
    ht_parallel(call->team, j->parts, arg_part, j);
    return HT_OK;
}

int HT_KERNEL(arg_extreme)(const ht_call *call)
{
    const ht_tensor *x = call->in[0], *y = call->out[0];
    if (call->num_in != 1 || call->num_ints != 5)
        return HT_ERR_OPERAND;
    const int64_t outer = call->ints[0], n = call->ints[1], inner = call->ints[2];
    if (n < 1 || outer * n * inner != x->size || y->size != outer * inner)
        return HT_ERR_OPERAND;
    if (y->dtype != HT_INT64)
        return HT_ERR_DTYPE;
    job j = {.out = y->data, .outer = outer, .n = n, .inner = inner};
    j.minimum = call->ints[3] != 0;
    j.last = call->ints[4] != 0;
    switch (x->dtype) {
    case HT_FLOAT32: j.arg = arg_f32; break;
    case HT_FLOAT64: j.arg = arg_f64; break;
    case HT_INT32: j.arg = arg_i32; break;
    case HT_INT64: j.arg = arg_i64; break;
    case HT_INT8: j.arg = arg_i8; break;
    case HT_UINT8: j.arg = arg_u8; break;
    default: return HT_ERR_DTYPE;
    }
    return run(call, &j);
}

int HT_KERNEL(hardmax)(const ht_call *call)
{
    const ht_tensor *x = call->in[0], *y = call->out[0];
    if (call->num_in != 1 || call->num_ints != 3)
        return HT_ERR_OPERAND;
    const int64_t outer = call->ints[0], n = call->ints[1], inner = call->ints[2];
    if (n < 1 || outer * n * inner != x->size || y->size != x->size)
        return HT_ERR_OPERAND;
    if (x->dtype != y->dtype || (x->dtype != HT_FLOAT32 && x->dtype != HT_FLOAT64))
        return HT_ERR_DTYPE;
    job j = {.one_hot = y->data, .outer = outer, .n = n, .inner = inner, .arg = x->dtype == HT_FLOAT32 ? arg_f32 : arg_f64};
    return run(call, &j);
}
