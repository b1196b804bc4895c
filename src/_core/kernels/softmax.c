/* softmax, or its logarithm, over one axis of x seen as [outer][axis][inner].
 *
 * in x, float32 or float64; out y, same dims; y may be x. ints: outer, axis, inner, logarithm (0 or 1).
 * The largest element is taken off first, so nothing overflows; a NaN, an infinity of the positive sign, or nothing but
 * negative ones make the row NaN, as in NumPy. float32 uses the vector exponential of vmath.h: within 4 units in the
 * last place or 2^-126; float64 libm. Three passes over each row, or over stripes of columns where inner > 1.
 */
#include "rows.h"
#include "vmath.h"

static void row_f32(const float *x, float *y, int64_t n, const int logarithm)
{
    /* A NaN that the maximum passes over comes back through the exponential's sum. */
    const vf top = vf_set1(ht_row_max(x, n, 0));
    vf s0 = vf_set1(0.0f), s1 = s0;
    int64_t i = 0;
    for (; i + 2 * VF_LANES <= n; i += 2 * VF_LANES) {
        const vf a = vf_load(x + i) - top, b = vf_load(x + i + VF_LANES) - top;
        const vf p = vf_exp_nonpositive(a), q = vf_exp_nonpositive(b);
        s0 += p;
        s1 += q;
        vf_store(y + i, logarithm ? a : p);
        vf_store(y + i + VF_LANES, logarithm ? b : q);
    }
    for (; i < n; i += VF_LANES) {
        const int64_t left = ht_min64(VF_LANES, n - i);
        const vf a = vf_load_or(x + i, 0, left, vf_set1(-INFINITY)) - top, p = vf_exp_nonpositive(a);
        s0 += p; /* the lanes past the end give exp(-inf) = 0, or NaN where the row is NaN anyway */
        vf_store_n(y + i, left, logarithm ? a : p);
    }
    const float sum = vf_hsum(s0 + s1);
    const vf shift = vf_set1(logarithm ? logf(sum) : 0.0f), scale = vf_set1(logarithm ? 1.0f : 1.0f / sum);
    /* Of the two, scale or shift is neutral; both are exact then. */
    for (i = 0; i + VF_LANES <= n; i += VF_LANES)
        vf_store(y + i, (vf_load(y + i) - shift) * scale);
    if (i < n)
        vf_store_n(y + i, n - i, (vf_load_n(y + i, n - i) - shift) * scale);
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
    for (int64_t i = 0; i < axis; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vectors; v++)
            top[v] = vf_max(LOAD(x), top[v]);
    for (int64_t i = 0; i < axis; i++)
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
    for (int64_t i = 0; i < axis; i++)
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
    int64_t j = 0;
    for (; j + 4 * VF_LANES <= inner; j += 4 * VF_LANES)
        stripe_f32(x + j, y + j, axis, inner, VF_LANES, 4, logarithm);
    for (; j < inner; j += VF_LANES)
        stripe_f32(x + j, y + j, axis, inner, ht_min64(VF_LANES, inner - j), 1, logarithm);
}

static void columns_f64(const double *x, double *y, int64_t axis, int64_t inner, int logarithm)
{
    for (int64_t j = 0; j < inner; j++) {
        double top = -INFINITY, sum = 0;
        for (int64_t i = 0; i < axis; i++)
            top = x[i * inner + j] > top ? x[i * inner + j] : top;
        for (int64_t i = 0; i < axis; i++) {
            const double shifted = x[i * inner + j] - top, power = exp(shifted);
            sum += power;
            y[i * inner + j] = logarithm ? shifted : power;
        }
        const double shift = log(sum);
        for (int64_t i = 0; i < axis; i++)
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
    const int64_t step = axis * inner, end = ht_part_begin(outer, job->parts, part + 1);
    const int logarithm = job->call->ints[3] != 0;
    (void)thread;
    for (int64_t i = ht_part_begin(outer, job->parts, part); i < end; i++) {
        if (x->dtype == HT_FLOAT64) {
            columns_f64((const double *)x->data + i * step, (double *)y->data + i * step, axis, inner, logarithm);
            continue;
        }
        const float *from = (const float *)x->data + i * step;
        float *to = (float *)y->data + i * step;
        if (inner == 1 && logarithm)
            row_f32(from, to, axis, 1);
        else if (inner == 1)
            row_f32(from, to, axis, 0);
        else if (logarithm)
            columns_f32(from, to, axis, inner, 1);
        else
            columns_f32(from, to, axis, inner, 0);
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
