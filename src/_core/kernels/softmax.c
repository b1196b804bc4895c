/* softmax over one axis of x seen as [outer][axis][inner].
 *
 * in x, float32 or float64; out y, same dims; y may be x. ints: outer, axis, inner, logarithm (0 or 1).
 * The largest element is taken off first, so nothing overflows. float32 with inner == 1 uses the vector exponential of
 * vmath.h (within 2 units in the last place), the rest libm. Three passes over each row.
 */
#include "vmath.h"

static void row_f32(const float *x, float *y, int64_t n, int logarithm)
{
    vf best = vf_set1(-INFINITY);
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        best = vf_max_nan(vf_load(x + i), best);
    float largest = vf_hmax(best);
    for (; i < n; i++)
        largest = x[i] > largest || x[i] != x[i] ? x[i] : largest;
    const vf top = vf_set1(largest);
    vf sums = vf_set1(0.0f);
    float sum = 0.0f;
    for (i = 0; i + VF_LANES <= n; i += VF_LANES) {
        const vf shifted = vf_load(x + i) - top, power = vf_exp(shifted);
        sums += power;
        vf_store(y + i, logarithm ? shifted : power);
    }
    if (i < n) {
        const vf shifted = vf_load_n(x + i, n - i) - top, power = vf_exp(shifted);
        float lanes[VF_LANES];
        vf_store(lanes, power);
        for (int64_t j = 0; j < n - i; j++)
            sum += lanes[j];
        vf_store_n(y + i, n - i, logarithm ? shifted : power);
    }
    sum += vf_hsum(sums);
    if (logarithm) {
        const float shift = logf(sum);
        for (i = 0; i < n; i++)
            y[i] -= shift;
    } else {
        const float scale = 1.0f / sum;
        for (i = 0; i < n; i++)
            y[i] *= scale;
    }
}

#define COLUMNS(type, exp_, log_)                                                                                     \
    static void columns_##type(const type *x, type *y, int64_t axis, int64_t inner, int logarithm)                    \
    {                                                                                                                 \
        for (int64_t j = 0; j < inner; j++) {                                                                         \
            type largest = -(type)INFINITY, sum = 0;                                                                  \
            for (int64_t i = 0; i < axis; i++) {                                                                      \
                const type value = x[i * inner + j];                                                                  \
                largest = value > largest || value != value ? value : largest;                                        \
            }                                                                                                         \
            for (int64_t i = 0; i < axis; i++) {                                                                      \
                const type shifted = x[i * inner + j] - largest, power = exp_(shifted);                               \
                sum += power;                                                                                         \
                y[i * inner + j] = logarithm ? shifted : power;                                                       \
            }                                                                                                         \
            const type total = logarithm ? log_(sum) : sum;                                                           \
            for (int64_t i = 0; i < axis; i++)                                                                        \
                y[i * inner + j] = logarithm ? y[i * inner + j] - total : y[i * inner + j] / total;                   \
        }                                                                                                             \
    }
COLUMNS(float, expf, logf)
COLUMNS(double, exp, log)

int HT_KERNEL(softmax)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_ints != 4)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *y = call->out[0];
    const int64_t outer = call->ints[0], axis = call->ints[1], inner = call->ints[2];
    const int logarithm = (int)call->ints[3];
    if (outer < 0 || axis < 0 || inner < 0 || outer * axis * inner != x->size || y->size != x->size)
        return HT_ERR_OPERAND;
    if (x->dtype != y->dtype || (x->dtype != HT_FLOAT32 && x->dtype != HT_FLOAT64))
        return HT_ERR_DTYPE;
    if (x->size == 0)
        return HT_OK;
    for (int64_t o = 0; o < outer; o++) {
        const int64_t at = o * axis * inner;
        if (x->dtype == HT_FLOAT64)
            columns_double((const double *)x->data + at, (double *)y->data + at, axis, inner, logarithm);
        else if (inner == 1)
            row_f32((const float *)x->data + at, (float *)y->data + at, axis, logarithm);
        else
            columns_float((const float *)x->data + at, (float *)y->data + at, axis, inner, logarithm);
    }
    return HT_OK;
}
