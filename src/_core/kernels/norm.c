/* Normalisations: batch_norm, layer_norm, instance_norm, lrn. All float32, sums in float32 vectors and the last step
 * in float64.
 *
 * batch_norm: y = (x - mean) / sqrt(var + epsilon) * scale + bias per channel.
 *   in x[n][c][inner], scale[c], bias[c], mean[c], var[c]; out y; y may be x. ints: n, c, inner. floats: epsilon.
 * layer_norm: the same over each row with the row's own mean and variance.
 *   in x[rows][width], scale[width], bias[width] or NULL; out y. ints: rows, width. floats: epsilon.
 * instance_norm: rows of one channel share scale and bias.
 *   in x[n * c][width], scale[c], bias[c]; out y. ints: n, c, width. floats: epsilon.
 * lrn: y = x / (k + alpha / size * sum of squares of the nearest `size` channels)^beta.
 *   in x[n][c][inner]; out y, not x. ints: n, c, inner, size. floats: alpha, beta, k.
 */
#include "vmath.h"

static int all_float32(const ht_call *call, int num_in, int num_ints, int num_floats, int64_t size)
{
    if (call->num_in != num_in || call->num_ints != num_ints || call->num_floats != num_floats ||
        call->in[0]->size != size || call->out[0]->size != size)
        return HT_ERR_OPERAND;
    for (int i = 0; i < num_in; i++)
        if (call->in[i] && call->in[i]->dtype != HT_FLOAT32)
            return HT_ERR_DTYPE;
    return call->out[0]->dtype == HT_FLOAT32 ? HT_OK : HT_ERR_DTYPE;
}

static void scale_row(const float *x, float *y, int64_t n, float factor, float offset)
{
    const vf f = vf_set1(factor), o = vf_set1(offset);
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store(y + i, vf_fma(vf_load(x + i), f, o));
    if (i < n)
        vf_store_n(y + i, n - i, vf_fma(vf_load_n(x + i, n - i), f, o));
}

/* Mean and biased variance of a row, in two passes: the second about the mean, so that no digits cancel. */
static void moments(const float *x, int64_t n, float *mean, float *variance)
{
    vf sums = vf_set1(0.0f), squares = sums;
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        sums += vf_load(x + i);
    double sum = vf_hsum(sums);
    for (; i < n; i++)
        sum += x[i];
    *mean = (float)(sum / (double)n);
    const vf centre = vf_set1(*mean);
    for (i = 0; i + VF_LANES <= n; i += VF_LANES) {
        const vf d = vf_load(x + i) - centre;
        squares = vf_fma(d, d, squares);
    }
    sum = vf_hsum(squares);
    for (; i < n; i++)
        sum += ((double)x[i] - *mean) * ((double)x[i] - *mean);
    *variance = (float)(sum / (double)n);
}

int HT_KERNEL(batch_norm)(const ht_call *call)
{
    const int64_t n = call->ints[0], c = call->ints[1], inner = call->ints[2];
    const int status = all_float32(call, 5, 3, 1, n * c * inner);
    if (status != HT_OK)
        return status;
    const float *scale = call->in[1]->data, *bias = call->in[2]->data;
    const float *mean = call->in[3]->data, *variance = call->in[4]->data;
    for (int i = 1; i < 5; i++)
        if (call->in[i]->size != c)
            return HT_ERR_OPERAND;
    for (int64_t plane = 0; plane < n * c; plane++) {
        const int64_t channel = plane % c;
        const double factor = scale[channel] / sqrt((double)variance[channel] + call->floats[0]);
        scale_row((const float *)call->in[0]->data + plane * inner, (float *)call->out[0]->data + plane * inner, inner,
                  (float)factor, (float)(bias[channel] - mean[channel] * factor));
    }
    return HT_OK;
}

int HT_KERNEL(layer_norm)(const ht_call *call)
{
    const int64_t rows = call->ints[0], width = call->ints[1];
    const int status = all_float32(call, 3, 2, 1, rows * width);
    if (status != HT_OK)
        return status;
    if (call->in[1]->size != width || (call->in[2] && call->in[2]->size != width))
        return HT_ERR_OPERAND;
    const float *scale = call->in[1]->data, *bias = call->in[2] ? call->in[2]->data : NULL;
    for (int64_t row = 0; row < rows; row++) {
        const float *x = (const float *)call->in[0]->data + row * width;
        float *y = (float *)call->out[0]->data + row * width, mean, variance;
        moments(x, width, &mean, &variance);
        const vf centre = vf_set1(mean);
        const vf factor = vf_set1((float)(1.0 / sqrt((double)variance + call->floats[0])));
        for (int64_t i = 0; i < width; i += VF_LANES) {
            const int64_t left = ht_min64(VF_LANES, width - i);
            const vf offset = bias ? vf_load_n(bias + i, left) : vf_set1(0.0f);
            if (left == VF_LANES)
                vf_store(y + i, vf_fma((vf_load(x + i) - centre) * factor, vf_load(scale + i), offset));
            else
                vf_store_n(y + i, left,
                           vf_fma((vf_load_n(x + i, left) - centre) * factor, vf_load_n(scale + i, left), offset));
        }
    }
    return HT_OK;
}

int HT_KERNEL(instance_norm)(const ht_call *call)
{
    const int64_t n = call->ints[0], c = call->ints[1], width = call->ints[2];
    const int status = all_float32(call, 3, 3, 1, n * c * width);
    if (status != HT_OK)
        return status;
    if (call->in[1]->size != c || call->in[2]->size != c)
        return HT_ERR_OPERAND;
    for (int64_t row = 0; row < n * c; row++) {
        const float *x = (const float *)call->in[0]->data + row * width;
        float mean, variance;
        moments(x, width, &mean, &variance);
        const double factor = ((const float *)call->in[1]->data)[row % c] / sqrt((double)variance + call->floats[0]);
        const double offset = ((const float *)call->in[2]->data)[row % c] - mean * factor;
        scale_row(x, (float *)call->out[0]->data + row * width, width, (float)factor, (float)offset);
    }
    return HT_OK;
}

/* x / s^beta; the exponents that trained models use need only square roots. */
HT_INLINE vf lrn_divide(vf x, vf s, float beta)
{
    if (beta == 0.75f) {
        const vf root = vf_sqrt(s);
        return x / (root * vf_sqrt(root));
    }
    if (beta == 0.5f)
        return x / vf_sqrt(s);
    if (beta == 1.0f)
        return x / s;
    return x * vf_exp(vf_set1(-beta) * vf_log(s));
}

int HT_KERNEL(lrn)(const ht_call *call)
{
    const int64_t n = call->ints[0], c = call->ints[1], inner = call->ints[2], size = call->ints[3];
    const int status = all_float32(call, 1, 4, 3, n * c * inner);
    if (status != HT_OK)
        return status;
    if (size < 1)
        return HT_ERR_OPERAND;
    const vf factor = vf_set1((float)(call->floats[0] / (double)size)), k = vf_set1((float)call->floats[2]);
    const float beta = (float)call->floats[1];
    const int64_t before = (size - 1) / 2, after = size - 1 - before;
    for (int64_t image = 0; image < n; image++) {
        const float *x = (const float *)call->in[0]->data + image * c * inner;
        float *y = (float *)call->out[0]->data + image * c * inner;
        for (int64_t i = 0; i < inner; i += VF_LANES) {
            const int64_t left = ht_min64(VF_LANES, inner - i);
            for (int64_t channel = 0; channel < c; channel++) {
                vf sum = vf_set1(0.0f);
                for (int64_t j = ht_max64(0, channel - before); j <= ht_min64(c - 1, channel + after); j++) {
                    const vf value = left == VF_LANES ? vf_load(x + j * inner + i) : vf_load_n(x + j * inner + i, left);
                    sum = vf_fma(value, value, sum);
                }
                const vf value = vf_load_n(x + channel * inner + i, left);
                const vf result = lrn_divide(value, vf_fma(sum, factor, k), beta);
                vf_store_n(y + channel * inner + i, left, result);
            }
        }
    }
    return HT_OK;
}
