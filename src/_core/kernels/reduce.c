/* Reductions over any axes.
 *
 * reduce: in x; out y with x's elements reduced over the marked axes (y's dims with or without them).
 *   ints: operation, rank, then per axis of x 1 if it is reduced. Operations: 0 sum, 1 mean, 2 max, 3 min, 4 product,
 *   5 sum of squares, 6 sum of magnitudes, 7 root of the sum of squares, 8 logarithm of the sum.
 *   float32, float64, int32, int64 (7 and 8: floats only); max and min also int8 and uint8, and propagate NaN.
 *   Integers wrap. An empty reduction gives the operation's neutral element (mean: NaN; max and min of integers: the
 *   type's smallest and largest value).
 *
 * Adjacent axes that are all reduced, or all kept, are merged. x is read once, in order. A reduced innermost axis
 * becomes one number per row (float32 by rows.h, float64 in independent partial sums); otherwise rows are added to rows
 * of y.
 */
#include "elements.h"
#include "rows.h"

#include <limits.h>

#define CODE(name) name,
enum { HT_REDUCTIONS(CODE) };
#undef CODE

typedef struct {
    int rank;
    int64_t size[HT_MAX_DIMS], step[HT_MAX_DIMS]; /* step in y; 0 where reduced */
} plan;

static void merge_axes(const ht_tensor *x, const int64_t *reduced, plan *p)
{
    int64_t step = 1;
    int kind = -1;
    p->rank = 0;
    for (int axis = x->ndim - 1; axis >= 0; axis--) { /* innermost first */
        const int reduce = reduced[axis] != 0;
        if (x->dims[axis] == 1)
            continue;
        if (reduce == kind)
            p->size[p->rank - 1] *= x->dims[axis];
        else {
            p->size[p->rank] = x->dims[axis];
            p->step[p->rank++] = reduce ? 0 : step;
        }
        if (!reduce)
            step *= x->dims[axis];
        kind = reduce;
    }
    if (p->rank == 0) {
        p->size[0] = 1;
        p->step[p->rank++] = 1;
    }
}

/* Signed integers wrap: sums and products are computed in the unsigned type of the same width. */
#define ACCUMULATE_SUM(a, v) ((value)((wide)(a) + (wide)(v)))
/* Without `||`, loops over them have no branches, and vectors. */
#define ACCUMULATE_MAX(a, v) ((((v) > (a)) | ((v) != (v))) ? (v) : (a))
#define ACCUMULATE_MIN(a, v) ((((v) < (a)) | ((v) != (v))) ? (v) : (a))
#define ACCUMULATE_PRODUCT(a, v) ((value)((wide)(a) * (wide)(v)))
#define SAME(v) (v)
#define SQUARE(v) ((value)((wide)(v) * (wide)(v)))
#define MAGNITUDE(v) ((v) < 0 ? (value)(0 - (wide)(v)) : (v))

/* Partial results of a row: 16 bytes are the narrowest vector. */
#define PARTS(type) (sizeof(type) == 1 ? 16 : 8)

/* Reduces one row of x: to a single element of y (step 0) with partial results, or elementwise. */
#define ROW(type, step, combine, map, neutral)                                                                        \
    if (step == 0) {                                                                                                  \
        type part[PARTS(type)];                                                                                       \
        for (int j = 0; j < (int)PARTS(type); j++)                                                                    \
            part[j] = neutral;                                                                                        \
        int64_t i = 0;                                                                                                \
        HT_LONG_STEPS(i, PARTS(type), n)                                                                              \
            for (int j = 0; j < (int)PARTS(type); j++)                                                                \
                part[j] = combine(part[j], map(x[i + j]));                                                            \
        for (; i < n; i++)                                                                                            \
            part[0] = combine(part[0], map(x[i]));                                                                    \
        for (int width = (int)PARTS(type) / 2; width; width /= 2)                                                     \
            for (int j = 0; j < width; j++)                                                                           \
                part[j] = combine(part[j], part[j + width]);                                                          \
        y[0] = combine(y[0], part[0]);                                                                                \
    } else {                                                                                                          \
        HT_LONG_FOR (i, n)                                                                                            \
            y[i] = combine(y[i], map(x[i]));                                                                          \
    }                                                                                                                 \
    break;

enum { SHORT_ROW = 64 };

/* Reduces a whole row of float32 to one number with rows.h; returns 0 for operations that it lacks. */
static int fast_f32(int operation, const float *x, float *y, int64_t n)
{
    switch (operation) {
    case MAX: {
        const float top = ht_row_max(x, n, 1);
        *y = top > *y || top != top ? top : *y;
        return 1;
    }
    case MIN: {
        const float lowest = ht_row_min(x, n);
        *y = lowest < *y || lowest != lowest ? lowest : *y;
        return 1;
    }
    case PRODUCT: return 0;
    case ROOT:
    case SQUARES: *y += (float)ht_row_sum_squares(x, n); return 1;
    case MAGNITUDES: *y += (float)ht_row_sum_magnitudes(x, n); return 1;
    default: *y += (float)ht_row_sum(x, n); return 1;
    }
}
#define fast_f64(operation, x, y, n) 0
#define fast_i32(operation, x, y, n) 0
#define fast_i64(operation, x, y, n) 0
#define fast_i8(operation, x, y, n) 0
#define fast_u8(operation, x, y, n) 0

/* One element of y after another, with the elements of its row in order. */
#define TINY(combine, map)                                                                                            \
    for (int64_t i = 0; i < rows; i++) {                                                                              \
        float a = y[i];                                                                                               \
        for (int64_t j = 0; j < n; j++)                                                                               \
            a = combine(a, map(x[i * n + j]));                                                                        \
        y[i] = a;                                                                                                     \
    }                                                                                                                 \
    break;

/* Adjacent rows of n elements, each reduced to one of y. The compiler makes vectors of rows if it knows n. */
HT_INLINE void tiny_rows(int operation, const float *HT_RESTRICT x, float *HT_RESTRICT y, int64_t rows, const int64_t n)
{
    typedef float value;
    typedef float wide;
    switch (operation) {
    case MAX: TINY(ACCUMULATE_MAX, SAME)
    case MIN: TINY(ACCUMULATE_MIN, SAME)
    case PRODUCT: TINY(ACCUMULATE_PRODUCT, SAME)
    case ROOT:
    case SQUARES: TINY(ACCUMULATE_SUM, SQUARE)
    case MAGNITUDES: TINY(ACCUMULATE_SUM, MAGNITUDE)
    default: TINY(ACCUMULATE_SUM, SAME)
    }
}

/* The same for rows of about a vector: each row becomes a vector of partial results, and the lanes of VF_LANES such vectors are
 * combined in pairs, until one vector has the results of all rows. Also the last rows, so that results do not depend on how
 * rows are divided. map(v, part): combines a vector of the row with the partial results. */
#define SHORT(combine, map, neutral)                                                                                  \
    for (int64_t i = 0; i < rows; i += VF_LANES) {                                                                    \
        const int64_t some = ht_min64(VF_LANES, rows - i);                                                            \
        vf r[VF_LANES];                                                                                               \
        for (int row = 0; row < VF_LANES; row++) {                                                                    \
            const float *from = x + (i + ht_min64(row, some - 1)) * n;                                                \
            vf part = vf_set1(neutral);                                                                               \
            int64_t j = 0;                                                                                            \
            for (; j + VF_LANES <= n; j += VF_LANES)                                                                  \
                part = map(vf_load(from + j), part);                                                                  \
            if (j < n)                                                                                                \
                part = map(vf_load_or(from + j, 0, n - j, vf_set1(neutral)), part);                                   \
            r[row] = part;                                                                                            \
        }                                                                                                             \
        _Pragma("GCC unroll 4") for (int width = VF_LANES / 2; width > 0; width /= 2)                                 \
            _Pragma("GCC unroll 8") for (int row = 0; row < width; row++)                                             \
                r[row] = combine(vf_zip_low(r[row], r[row + width]), vf_zip_high(r[row], r[row + width]));            \
        vf_store_n(y + i, some, combine(vf_load_n(y + i, some), r[0]));                                               \
    }                                                                                                                 \
    break;
#define PLUS(v, part) ((v) + (part))
#define TIMES(v, part) ((v) * (part))
#define PLUS_SQUARE(v, part) vf_fma(v, v, part)
#define PLUS_MAGNITUDE(v, part) (vf_abs(v) + (part))

static void short_rows(int operation, const float *x, float *y, int64_t rows, int64_t n)
{
    switch (operation) {
    case MAX: SHORT(vf_max_nan, vf_max_nan, -INFINITY)
    case MIN: SHORT(vf_min_nan, vf_min_nan, INFINITY)
    case PRODUCT: SHORT(TIMES, TIMES, 1.0f)
    case ROOT:
    case SQUARES: SHORT(PLUS, PLUS_SQUARE, 0.0f)
    case MAGNITUDES: SHORT(PLUS, PLUS_MAGNITUDE, 0.0f)
    default: SHORT(PLUS, PLUS, 0.0f)
    }
}

/* Extremes of rows of three or four elements, a vector of rows at a time; returns how many rows it did. */
HT_INLINE int64_t extremes(const float *x, float *y, int64_t rows, const int64_t n, const int minimum)
{
#define EXTREME(a, b) (minimum ? vf_min_nan(a, b) : vf_max_nan(a, b))
    int64_t i = 0;
    for (; i + VF_LANES < rows; i += VF_LANES, x += n * VF_LANES) { /* of three, the first elements of a further row are read */
        if (n == 4) {
            const vf a = vf_load(x), b = vf_load(x + VF_LANES), c = vf_load(x + 2 * VF_LANES), d = vf_load(x + 3 * VF_LANES);
            const vf first = EXTREME(vf_even(a, b), vf_odd(a, b)), second = EXTREME(vf_even(c, d), vf_odd(c, d));
            vf_store(y + i, EXTREME(vf_even(first, second), vf_odd(first, second)));
        } else { /* the extremes of all three neighbors; every third belongs to a row */
            float all[3 * VF_LANES];
#pragma GCC unroll 3
            for (int k = 0; k < 3 * VF_LANES; k += VF_LANES)
                vf_store(all + k, EXTREME(EXTREME(vf_load(x + k), vf_load(x + k + 1)), vf_load(x + k + 2)));
#pragma GCC unroll 16
            for (int row = 0; row < VF_LANES; row++)
                y[i + row] = all[3 * row];
        }
    }
    return i;
#undef EXTREME
}

static void extreme_rows(int operation, const float *x, float *y, int64_t rows, int64_t n)
{
    int64_t done;
    if (operation == MAX)
        done = n == 3 ? extremes(x, y, rows, 3, 0) : extremes(x, y, rows, 4, 0);
    else
        done = n == 3 ? extremes(x, y, rows, 3, 1) : extremes(x, y, rows, 4, 1);
    short_rows(operation, x + n * done, y + done, rows - done, n);
}

/* Reduces adjacent rows of few elements; returns 0 if these are not. */
static int short_f32(int operation, const plan *p, const float *x, float *y, int64_t rows, int64_t pitch)
{
    const int64_t n = p->size[0];
    int64_t left = HT_PACE;
    _Static_assert(VF_LANES <= 16, "pragmas of SHORT unroll loops as often");
    if (p->rank != 2 || p->step[0] != 0 || n < 2 || n > SHORT_ROW || pitch != n)
        return 0;
    for (int64_t row = 0, some; row < rows; row += some) {
        some = ht_min64(HT_PIECE, rows - row);
        if (ht_paced_stop(&left, n * some))
            return 1;
        if (n == 2)
            tiny_rows(operation, x + 2 * row, y + row, some, 2);
        else if (n <= 4 && (operation == MAX || operation == MIN)) /* GCC makes branches of three maxima */
            extreme_rows(operation, x + n * row, y + row, some, n);
        else if (n > 4)
            short_rows(operation, x + n * row, y + row, some, n);
        else if (n == 3)
            tiny_rows(operation, x + 3 * row, y + row, some, 3);
        else
            tiny_rows(operation, x + 4 * row, y + row, some, 4);
    }
    return 1;
}
#define short_f64(operation, p, x, y, rows, pitch) 0
#define short_i32(operation, p, x, y, rows, pitch) 0
#define short_i64(operation, p, x, y, rows, pitch) 0
#define short_i8(operation, p, x, y, rows, pitch) 0
#define short_u8(operation, p, x, y, rows, pitch) 0

/* Reduces several rows of x to one of y, because loading and storing y takes longer than combining. y's elements get those
 * of x in the order of their rows, as by `row_`. */
enum { TOGETHER = 4 };
#define ROWS(combine, map)                                                                                            \
    HT_LONG_FOR (i, n) {                                                                                              \
        const value a = combine(y[i], map(x[i])), b = combine(a, map(x1[i])), c = combine(b, map(x2[i]));             \
        y[i] = combine(c, map(x3[i]));                                                                                \
    }                                                                                                                 \
    break;

#define REDUCE(linkage, suffix, type, unsigned_type, lowest, highest)                                                 \
    static void row_##suffix(int operation, const type *x, type *y, int64_t n, int64_t step)                          \
    {                                                                                                                 \
        typedef type value;                                                                                           \
        typedef unsigned_type wide;                                                                                   \
        if (step == 0 && fast_##suffix(operation, x, y, n))                                                           \
            return;                                                                                                   \
        if (sizeof(type) == 1 && operation != MAX && operation != MIN) /* see supports */                             \
            return;                                                                                                   \
        switch (operation) {                                                                                          \
        case MAX: ROW(type, step, ACCUMULATE_MAX, SAME, lowest)                                                       \
        case MIN: ROW(type, step, ACCUMULATE_MIN, SAME, highest)                                                      \
        case PRODUCT: ROW(type, step, ACCUMULATE_PRODUCT, SAME, 1)                                                    \
        case ROOT:                                                                                                    \
        case SQUARES: ROW(type, step, ACCUMULATE_SUM, SQUARE, 0)                                                      \
        case MAGNITUDES: ROW(type, step, ACCUMULATE_SUM, MAGNITUDE, 0)                                                \
        default: ROW(type, step, ACCUMULATE_SUM, SAME, 0)                                                             \
        }                                                                                                             \
    }                                                                                                                 \
    static void rows_##suffix(int operation, const type *HT_RESTRICT x, int64_t pitch, type *HT_RESTRICT y, int64_t n) \
    {                                                                                                                 \
        typedef type value;                                                                                           \
        typedef unsigned_type wide;                                                                                   \
        const type *x1 = x + pitch, *x2 = x1 + pitch, *x3 = x2 + pitch;                                               \
        if (sizeof(type) == 1 && operation != MAX && operation != MIN) /* see supports */                             \
            return;                                                                                                   \
        switch (operation) {                                                                                          \
        case MAX: ROWS(ACCUMULATE_MAX, SAME)                                                                          \
        case MIN: ROWS(ACCUMULATE_MIN, SAME)                                                                          \
        case PRODUCT: ROWS(ACCUMULATE_PRODUCT, SAME)                                                                  \
        case ROOT:                                                                                                    \
        case SQUARES: ROWS(ACCUMULATE_SUM, SQUARE)                                                                    \
        case MAGNITUDES: ROWS(ACCUMULATE_SUM, MAGNITUDE)                                                              \
        default: ROWS(ACCUMULATE_SUM, SAME)                                                                           \
        }                                                                                                             \
    }                                                                                                                 \
    /* Reduces `rows` rows of p->size[0] elements, which begin `pitch` elements apart. */                             \
    linkage void reduce_##suffix(int operation, const plan *p, const void *from, int64_t rows, int64_t pitch, void *to, \
                                 int64_t y_size)                                                                       \
    {                                                                                                                 \
        const type neutral = operation == MAX ? lowest : operation == MIN ? highest : operation == PRODUCT ? 1 : 0;   \
        const type *x = (const type *)from;                                                                           \
        type *y = (type *)to;                                                                                         \
        HT_LONG_FOR (i, y_size)                                                                                       \
            y[i] = neutral;                                                                                           \
        int64_t index[HT_MAX_DIMS] = {0}, at = 0;                                                                     \
        const int64_t n = p->size[0];                                                                                 \
        int64_t left = HT_PACE;                                                                                       \
        if (short_##suffix(operation, p, x, y, rows, pitch))                                                          \
            return;                                                                                                   \
        for (int64_t row = 0, some; row < rows; row += some) {                                                        \
            const int together = p->step[0] != 0 && p->rank > 1 && p->step[1] == 0 && p->size[1] - index[1] >= TOGETHER; \
            some = together ? TOGETHER : 1;                                                                           \
            if (ht_paced_stop(&left, some * n))                                                                       \
                return;                                                                                               \
            if (together) {                                                                                           \
                rows_##suffix(operation, x + row * pitch, pitch, y + at, n);                                          \
                index[1] += TOGETHER - 1;                                                                             \
            } else                                                                                                    \
                row_##suffix(operation, x + row * pitch, y + at, n, p->step[0]);                                      \
            for (int axis = 1; axis < p->rank; axis++) {                                                              \
                at += p->step[axis];                                                                                  \
                if (++index[axis] < p->size[axis])                                                                    \
                    break;                                                                                            \
                index[axis] = 0;                                                                                      \
                at -= p->step[axis] * p->size[axis];                                                                  \
            }                                                                                                         \
        }                                                                                                             \
    }
REDUCE(static, f32, float, float, -INFINITY, INFINITY)
typedef void reduce_fn(int operation, const plan *p, const void *from, int64_t rows, int64_t pitch, void *to, int64_t y_size);
#define reduce_f64 HT_NARROWED(reduce_f64)
#define reduce_i32 HT_NARROWED(reduce_i32)
#define reduce_i64 HT_KERNEL(reduce_i64) /* AVX2 has no maximum of int64 */
#define reduce_i8 HT_NARROWED(reduce_i8)
#define reduce_u8 HT_NARROWED(reduce_u8)
reduce_fn reduce_f64, reduce_i32, reduce_i64, reduce_i8, reduce_u8;
REDUCE(, i64, int64_t, uint64_t, INT64_MIN, INT64_MAX)
#if HT_DEFINES_NARROWED
REDUCE(, f64, double, double, -INFINITY, INFINITY)
REDUCE(, i32, int32_t, uint32_t, INT32_MIN, INT32_MAX)
REDUCE(, i8, int8_t, uint32_t, INT8_MIN, INT8_MAX)
REDUCE(, u8, uint8_t, uint32_t, 0, UINT8_MAX)
#endif

/* A whole call. The threads divide the outermost axis if it is kept, else the columns of a matrix whose rows are
 * reduced to one: either way each has a contiguous range of y. */
typedef struct {
    const ht_call *call;
    plan p;
    int operation, by_columns;
    int64_t count;        /* elements of x for one of y */
    int64_t units, parts; /* units: indices of the outermost axis, or groups of COLUMNS columns */
} reduction;

enum { COLUMNS = 64 };

/* Turns sums into the results of an operation. */
static void finish(const reduction *job, void *to, int64_t n)
{
    const int operation = job->operation;
    const int64_t count = job->count;
    if (operation != MEAN && operation != ROOT && operation != LOGARITHM)
        return;
    switch (job->call->out[0]->dtype) {
    case HT_FLOAT32: {
        float *y = (float *)to;
        HT_LONG_FOR (i, n)
            y[i] = operation == MEAN ? y[i] / (float)count : operation == ROOT ? sqrtf(y[i]) : logf(y[i]);
        return;
    }
    case HT_FLOAT64: {
        double *y = (double *)to;
        HT_LONG_FOR (i, n)
            y[i] = operation == MEAN ? y[i] / (double)count : operation == ROOT ? sqrt(y[i]) : log(y[i]);
        return;
    }
    case HT_INT32: {
        int32_t *y = (int32_t *)to;
        HT_LONG_FOR (i, n)
            y[i] = (int32_t)(y[i] / count);
        return;
    }
    default: {
        int64_t *y = (int64_t *)to;
        HT_LONG_FOR (i, n)
            y[i] /= count;
    }
    }
}

static void reduce_part(void *context, int64_t part, int thread)
{
    const reduction *job = (const reduction *)context;
    const ht_tensor *x = job->call->in[0], *y = job->call->out[0];
    plan p = job->p;
    const int outer = p.rank - 1;
    const int64_t pitch = p.size[0];
    int64_t x_at = 0, y_at = 0, y_size = y->size, rows = 0;
    (void)thread;
    if (job->parts > 1) {
        int64_t begin = ht_part_begin(job->units, job->parts, part), end = ht_part_begin(job->units, job->parts, part + 1);
        if (job->by_columns) {
            begin *= COLUMNS;
            end = ht_min64(pitch, end * COLUMNS);
            x_at = y_at = begin;
            p.size[0] = y_size = end - begin;
        } else {
            x_at = begin * (x->size / p.size[outer]);
            y_at = begin * p.step[outer];
            p.size[outer] = end - begin;
            y_size = p.size[outer] * p.step[outer];
        }
    }
    if (x->size > 0)
        for (int axis = (rows = 1); axis < p.rank; axis++)
            rows *= p.size[axis];
    const int64_t bytes = ht_element_bytes(x->dtype);
    const char *from = (const char *)x->data + x_at * bytes;
    char *to = (char *)y->data + y_at * bytes;
    switch (x->dtype) {
    case HT_FLOAT32: reduce_f32(job->operation, &p, from, rows, pitch, to, y_size); break;
    case HT_FLOAT64: reduce_f64(job->operation, &p, from, rows, pitch, to, y_size); break;
    case HT_INT32: reduce_i32(job->operation, &p, from, rows, pitch, to, y_size); break;
    case HT_INT64: reduce_i64(job->operation, &p, from, rows, pitch, to, y_size); break;
    case HT_INT8: reduce_i8(job->operation, &p, from, rows, pitch, to, y_size); break;
    default: reduce_u8(job->operation, &p, from, rows, pitch, to, y_size); break;
    }
    finish(job, to, y_size);
}

static int supports(int32_t dtype, int operation)
{
    switch (dtype) {
    case HT_FLOAT32:
    case HT_FLOAT64: return 1;
    case HT_INT32:
    case HT_INT64: return operation != ROOT && operation != LOGARITHM;
    case HT_INT8:
    case HT_UINT8: return operation == MAX || operation == MIN;
    default: return 0;
    }
}

int HT_KERNEL(reduce)(const ht_call *call)
{
    const ht_tensor *x = call->in[0], *y = call->out[0];
    if (call->num_in != 1 || call->num_ints < 2 || call->ints[1] != x->ndim || call->num_ints != 2 + x->ndim)
        return HT_ERR_OPERAND;
    reduction job = {.call = call, .operation = (int)call->ints[0], .count = 1, .units = 1};
    const int64_t *reduced = call->ints + 2;
    int64_t kept = 1;
    for (int axis = 0; axis < x->ndim; axis++)
        *(reduced[axis] ? &job.count : &kept) *= x->dims[axis];
    if (x->dtype != y->dtype)
        return HT_ERR_DTYPE;
    if (kept != y->size || job.operation < SUM || job.operation > LOGARITHM)
        return HT_ERR_OPERAND;
    if (!supports(x->dtype, job.operation))
        return HT_ERR_DTYPE;
    if (job.operation == MEAN && job.count == 0 && x->dtype != HT_FLOAT32 && x->dtype != HT_FLOAT64)
        return HT_ERR_DIVIDE;
    merge_axes(x, reduced, &job.p);
    const plan *p = &job.p;
    job.by_columns = p->step[p->rank - 1] == 0 ? p->rank == 2 : p->rank == 1;
    if (x->size > 0 && job.by_columns)
        job.units = ht_ceil_div(p->size[0], COLUMNS);
    else if (x->size > 0 && p->step[p->rank - 1] != 0)
        job.units = p->size[p->rank - 1];
    job.parts = ht_min64(job.units, ht_wanted(call, 4 * (double)x->size));
    ht_parallel(call->team, job.parts, reduce_part, &job);
    return HT_OK;
}
