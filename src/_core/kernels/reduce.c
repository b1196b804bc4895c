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
#define ACCUMULATE_MAX(a, v) ((v) > (a) || (v) != (v) ? (v) : (a))
#define ACCUMULATE_MIN(a, v) ((v) < (a) || (v) != (v) ? (v) : (a))
#define ACCUMULATE_PRODUCT(a, v) ((value)((wide)(a) * (wide)(v)))
#define SAME(v) (v)
#define SQUARE(v) ((value)((wide)(v) * (wide)(v)))
#define MAGNITUDE(v) ((v) < 0 ? (value)(0 - (wide)(v)) : (v))

/* Reduces one row of x: to a single element of y (step 0) with eight partial results, or elementwise. */
#define ROW(type, step, combine, map, neutral)                                                                        \
    if (step == 0) {                                                                                                  \
        type part[8];                                                                                                 \
        for (int j = 0; j < 8; j++)                                                                                   \
            part[j] = neutral;                                                                                        \
        int64_t i = 0;                                                                                                \
        HT_LONG_STEPS(i, 8, n)                                                                                        \
            for (int j = 0; j < 8; j++)                                                                               \
                part[j] = combine(part[j], map(x[i + j]));                                                            \
        for (; i < n; i++)                                                                                            \
            part[0] = combine(part[0], map(x[i]));                                                                    \
        for (int width = 4; width; width /= 2)                                                                        \
            for (int j = 0; j < width; j++)                                                                           \
                part[j] = combine(part[j], part[j + width]);                                                          \
        y[0] = combine(y[0], part[0]);                                                                                \
    } else {                                                                                                          \
        HT_LONG_FOR (i, n)                                                                                            \
            y[i] = combine(y[i], map(x[i]));                                                                          \
    }                                                                                                                 \
    break;

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

#define REDUCE(suffix, type, unsigned_type, lowest, highest)                                                          \
    static void row_##suffix(int operation, const type *x, type *y, int64_t n, int64_t step)                          \
    {                                                                                                                 \
        typedef type value;                                                                                           \
        typedef unsigned_type wide;                                                                                   \
        if (step == 0 && fast_##suffix(operation, x, y, n))                                                           \
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
    static void reduce_##suffix(int operation, const plan *p, const type *x, int64_t x_size, type *y, int64_t y_size) \
    {                                                                                                                 \
        const type neutral = operation == MAX ? lowest : operation == MIN ? highest : operation == PRODUCT ? 1 : 0;   \
        HT_LONG_FOR (i, y_size)                                                                                       \
            y[i] = neutral;                                                                                           \
        int64_t index[HT_MAX_DIMS] = {0}, at = 0;                                                                     \
        const int64_t n = p->size[0];                                                                                 \
        int64_t left = HT_PACE;                                                                                       \
        for (int64_t done = 0; done < x_size; done += n) {                                                            \
            if (ht_paced_stop(&left, n))                                                                              \
                return;                                                                                               \
            row_##suffix(operation, x + done, y + at, n, p->step[0]);                                                 \
            for (int axis = 1; axis < p->rank; axis++) {                                                              \
                at += p->step[axis];                                                                                  \
                if (++index[axis] < p->size[axis])                                                                    \
                    break;                                                                                            \
                index[axis] = 0;                                                                                      \
                at -= p->step[axis] * p->size[axis];                                                                  \
            }                                                                                                         \
        }                                                                                                             \
    }
REDUCE(f32, float, float, -INFINITY, INFINITY)
REDUCE(f64, double, double, -INFINITY, INFINITY)
REDUCE(i32, int32_t, uint32_t, INT32_MIN, INT32_MAX)
REDUCE(i64, int64_t, uint64_t, INT64_MIN, INT64_MAX)
REDUCE(i8, int8_t, uint32_t, INT8_MIN, INT8_MAX)
REDUCE(u8, uint8_t, uint32_t, 0, UINT8_MAX)

int HT_KERNEL(reduce)(const ht_call *call)
{
    const ht_tensor *x = call->in[0], *y = call->out[0];
    plan p;
    if (call->num_in != 1 || call->num_ints < 2 || call->ints[1] != x->ndim || call->num_ints != 2 + x->ndim)
        return HT_ERR_OPERAND;
    const int operation = (int)call->ints[0];
    const int64_t *reduced = call->ints + 2;
    int64_t kept = 1, count = 1;
    for (int axis = 0; axis < x->ndim; axis++)
        *(reduced[axis] ? &count : &kept) *= x->dims[axis];
    if (x->dtype != y->dtype)
        return HT_ERR_DTYPE;
    if (kept != y->size || operation < SUM || operation > LOGARITHM)
        return HT_ERR_OPERAND;
    merge_axes(x, reduced, &p);
    if (x->dtype == HT_FLOAT32) {
        float *out = y->data;
        reduce_f32(operation, &p, x->data, x->size, out, kept);
        HT_LONG_FOR (i, kept)
            out[i] = operation == MEAN ? out[i] / (float)count : operation == ROOT ? sqrtf(out[i])
                     : operation == LOGARITHM ? logf(out[i]) : out[i];
    } else if (x->dtype == HT_FLOAT64) {
        double *out = y->data;
        reduce_f64(operation, &p, x->data, x->size, out, kept);
        HT_LONG_FOR (i, kept)
            out[i] = operation == MEAN ? out[i] / (double)count : operation == ROOT ? sqrt(out[i])
                     : operation == LOGARITHM ? log(out[i]) : out[i];
    } else if (operation == ROOT || operation == LOGARITHM) {
        return HT_ERR_DTYPE;
    } else if (x->dtype == HT_INT32) {
        int32_t *out = y->data;
        reduce_i32(operation, &p, x->data, x->size, out, kept);
        if (operation == MEAN && count == 0)
            return HT_ERR_DIVIDE;
        const int64_t means = operation == MEAN ? kept : 0;
        HT_LONG_FOR (i, means)
            out[i] = (int32_t)(out[i] / count);
    } else if (x->dtype == HT_INT64) {
        int64_t *out = y->data;
        reduce_i64(operation, &p, x->data, x->size, out, kept);
        if (operation == MEAN && count == 0)
            return HT_ERR_DIVIDE;
        const int64_t means = operation == MEAN ? kept : 0;
        HT_LONG_FOR (i, means)
            out[i] /= count;
    } else if (operation != MAX && operation != MIN) {
        return HT_ERR_DTYPE;
    } else if (x->dtype == HT_INT8) {
        reduce_i8(operation, &p, x->data, x->size, y->data, kept);
    } else if (x->dtype == HT_UINT8) {
        reduce_u8(operation, &p, x->data, x->size, y->data, kept);
    } else {
        return HT_ERR_DTYPE;
    }
    return HT_OK;
}
