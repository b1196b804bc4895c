/* softmax, or its logarithm, over one axis of x seen as [outer][axis][inner].
 *
 * in x, float32 or float64; out y, same dims; y may be x. ints: outer, axis, inner, logarithm (0 or 1). The largest
 * element is subtracted first, so nothing overflows. A row becomes NaN if it contains NaN or +infinity, or only
 * -infinity, as in NumPy. float32 uses the vector exponential of vmath.h: within 4 units in the last place or 2^-126;
 * float64 uses libm. Three passes over each row, or over stripes of columns if inner > 1 or rows are short.
 */
#include "softmax.h"

#include "rows.h"
#include "vmath.h"

/* Computes rows in pairs, whose dependency chains hide each other's latency; `rows` is 1 or 2. The order of a row's
 * sums is the same alone and in a pair. */
HT_INLINE void rows_f32(const float *x, float *y, int64_t n, const int rows, const int logarithm)
{
    /* A NaN that the maximum skips reappears in the sum of exponentials. */
    const vf low = vf_set1(-INFINITY), none = vf_set1(0.0f);
    vf m[2][2] = {{low, low}, {low, low}}, s[2][2] = {{none, none}, {none, none}}, top[2], shift[2], scale[2];
    int64_t i = 0;
    HT_LONG_STEPS(i, 2 * VF_LANES, n)
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++)
                m[r][j] = vf_max(vf_load(x + r * n + i + j * VF_LANES), m[r][j]);
    for (; i < n; i += VF_LANES)
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
            m[r][0] = vf_max(vf_load_or(x + r * n + i, 0, ht_min64(VF_LANES, n - i), low), m[r][0]);
    for (int r = 0; r < rows; r++)
        top[r] = vf_set1(vf_hmax(vf_max(m[r][0], m[r][1])));
    i = 0;
    HT_LONG_STEPS(i, 2 * VF_LANES, n)
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                const int64_t k = r * n + i + j * VF_LANES;
                const vf a = vf_load(x + k) - top[r], p = vf_exp_nonpositive(a);
                s[r][j] += p;
                vf_store(y + k, logarithm ? a : p);
            }
    for (; i < n; i += VF_LANES)
        for (int r = 0; r < rows; r++) {
            const int64_t k = r * n + i, left = ht_min64(VF_LANES, n - i);
            const vf a = vf_load_or(x + k, 0, left, low) - top[r], p = vf_exp_nonpositive(a);
            s[r][0] += p; /* the lanes past the end give exp(-inf) = 0, or NaN where the row is NaN anyway */
            vf_store_n(y + k, left, logarithm ? a : p);
        }
    for (int r = 0; r < rows; r++) {
        const float sum = vf_hsum(s[r][0] + s[r][1]);
        shift[r] = vf_set1(logarithm ? logf(sum) : 0.0f);
        scale[r] = vf_set1(logarithm ? 0.0f : 1.0f / sum);
    }
    i = 0;
    HT_LONG_STEPS(i, VF_LANES, n)
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++) {
            const vf v = vf_load(y + r * n + i);
            vf_store(y + r * n + i, logarithm ? v - shift[r] : v * scale[r]);
        }
    if (i < n)
        for (int r = 0; r < rows; r++) {
            const vf v = vf_load_n(y + r * n + i, n - i);
            vf_store_n(y + r * n + i, n - i, logarithm ? v - shift[r] : v * scale[r]);
        }
}

/* Columns [0, VECTORS * VF_LANES) or, with one vector, the first `lanes` of them. */
HT_INLINE void stripe_f32(const float *x, float *y, int64_t axis, int64_t inner, int64_t lanes, const int vectors,
                          const int logarithm)
{
    vf top[4], sum[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        top[v] = vf_set1(-INFINITY);
        sum[v] = vf_set1(0.0f);
    }
#define AT(p) ((p) + i * inner + v * VF_LANES)
#define LOAD(p) (vectors == 1 ? vf_load_n(AT(p), lanes) : vf_load(AT(p)))
#define STORE(p, value)                                                                                               \
    do {                                                                                                              \
        if (vectors == 1)                                                                                             \
            vf_store_n(AT(p), lanes, value);                                                                          \
        else                                                                                                          \
            vf_store(AT(p), value);                                                                                   \
    } while (0)
    HT_LONG_FOR (i, axis)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            top[v] = vf_max(LOAD(x), top[v]);
    HT_LONG_FOR (i, axis)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            const vf a = LOAD(x) - top[v], p = vf_exp_nonpositive(a);
            sum[v] += p;
            STORE(y, logarithm ? a : p);
        }
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++) {
        if (logarithm)
            sum[v] = vf_log(sum[v]);
        else
            sum[v] = vf_set1(1.0f) / sum[v];
    }
    HT_LONG_FOR (i, axis)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++) {
            vf value = LOAD(y);
            if (logarithm)
                value -= sum[v];
            else
                value *= sum[v];
            STORE(y, value);
        }
#undef AT
#undef LOAD
#undef STORE
}

HT_INLINE void columns_f32(const float *x, float *y, int64_t axis, int64_t inner, const int logarithm)
{
    int64_t j = 0, left = HT_PACE;
    for (; j + 4 * VF_LANES <= inner && !ht_paced_stop(&left, 4 * VF_LANES * axis); j += 4 * VF_LANES)
        stripe_f32(x + j, y + j, axis, inner, VF_LANES, 4, logarithm);
    for (; j < inner && !ht_paced_stop(&left, VF_LANES * axis); j += VF_LANES)
        stripe_f32(x + j, y + j, axis, inner, ht_min64(VF_LANES, inner - j), 1, logarithm);
}

/* Rows of at most SHORT elements, which leave most lanes of a vector empty: a vector of rows is transposed, so that each
 * lane computes one row. The bits of a row do not depend on the rows beside it. */
#define SHORT 16

HT_INLINE void short_rows_f32(const float *x, float *y, int64_t rows, int64_t n, const int logarithm)
{
    float block[SHORT * VF_LANES] = {0};
    for (int64_t r = 0; r < rows; r += VF_LANES, x += VF_LANES * n, y += VF_LANES * n) {
        const int64_t count = ht_min64(VF_LANES, rows - r);
        for (int64_t lane = 0; lane < count; lane++)
            for (int64_t i = 0; i < n; i++)
                block[i * VF_LANES + lane] = x[lane * n + i];
        stripe_f32(block, block, n, VF_LANES, VF_LANES, 1, logarithm);
        for (int64_t lane = 0; lane < count; lane++)
            for (int64_t i = 0; i < n; i++)
                y[lane * n + i] = block[i * VF_LANES + lane];
    }
}

HT_INLINE void rows_of_any_length(const float *x, float *y, int64_t rows, int64_t n, const int logarithm)
{
    if (n <= SHORT) {
        short_rows_f32(x, y, rows, n, logarithm);
        return;
    }
    int64_t r = 0;
    if (n <= HT_PAIR_WIDTH)
        for (; r + 2 <= rows; r += 2)
            rows_f32(x + r * n, y + r * n, n, 2, logarithm);
    for (; r < rows; r++)
        rows_f32(x + r * n, y + r * n, n, 1, logarithm);
}

/* Four functions, because GCC takes longer for one that contains them all. */
void ht_softmax_rows(const float *x, float *y, int64_t rows, int64_t n)
{
    rows_of_any_length(x, y, rows, n, 0);
}

static __attribute__((noinline)) void log_softmax_rows(const float *x, float *y, int64_t rows, int64_t n)
{
    rows_of_any_length(x, y, rows, n, 1);
}

static __attribute__((noinline)) void softmax_columns(const float *x, float *y, int64_t axis, int64_t inner)
{
    columns_f32(x, y, axis, inner, 0);
}

static __attribute__((noinline)) void log_softmax_columns(const float *x, float *y, int64_t axis, int64_t inner)
{
    columns_f32(x, y, axis, inner, 1);
}

static void columns_f64(const double *x, double *y, int64_t axis, int64_t inner, int logarithm)
{
    int64_t left = HT_PIECE;
    for (int64_t j = 0; j < inner && !ht_paced_stop(&left, axis); j++) {
        double top = -INFINITY, sum = 0;
        HT_LONG_FOR (i, axis)
            top = x[i * inner + j] > top ? x[i * inner + j] : top;
        HT_LONG_FOR (i, axis) {
            const double shifted = x[i * inner + j] - top, power = exp(shifted);
            sum += power;
            y[i * inner + j] = logarithm ? shifted : power;
        }
        const double shift = log(sum);
        HT_LONG_FOR (i, axis)
            y[i * inner + j] = logarithm ? y[i * inner + j] - shift : y[i * inner + j] / sum;
    }
}

typedef struct {
    const ht_call *call;
    int64_t parts;
} rows_of_call;

static void softmax_part(void *context, int64_t part, int thread)
{
    const rows_of_call *job = (const rows_of_call *)context;
    const ht_tensor *x = job->call->in[0], *y = job->call->out[0];
    const int64_t outer = job->call->ints[0], axis = job->call->ints[1], inner = job->call->ints[2];
    const int64_t begin = ht_part_begin(outer, job->parts, part), end = ht_part_begin(outer, job->parts, part + 1);
    const int logarithm = job->call->ints[3] != 0;
    (void)thread;
    if (x->dtype == HT_FLOAT32 && inner == 1) {
        (logarithm ? log_softmax_rows : ht_softmax_rows)((const float *)x->data + begin * axis,
                                                         (float *)y->data + begin * axis, end - begin, axis);
        return;
    }
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i * axis * inner;
        if (x->dtype == HT_FLOAT64)
            columns_f64((const double *)x->data + at, (double *)y->data + at, axis, inner, logarithm);
        else
            (logarithm ? log_softmax_columns : softmax_columns)((const float *)x->data + at, (float *)y->data + at,
                                                                axis, inner);
    }
}

int HT_KERNEL(softmax)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_ints != 4)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *y = call->out[0];
    const int64_t outer = call->ints[0], axis = call->ints[1], inner = call->ints[2];
    if (outer < 0 || axis < 0 || inner < 0 || outer * axis * inner != x->size || y->size != x->size)
        return HT_ERR_OPERAND;
    if (x->dtype != y->dtype || (x->dtype != HT_FLOAT32 && x->dtype != HT_FLOAT64))
        return HT_ERR_DTYPE;
    if (x->size == 0)
        return HT_OK;
    rows_of_call job = {call, ht_parts(call, outer, 8 * (double)x->size)};
    ht_parallel(call->team, job.parts, softmax_part, &job);
    return HT_OK;
}
