/* group_norm: y = (x - mean) / sqrt(variance + epsilon) * scale + bias, with mean and variance over a group of channels
 * of one image, and scale and bias per channel; with one channel in each group, instance normalization. Subtracting the
 * mean first makes equal elements exactly the bias: see ht_row_variance. Source: Wu and He, Group Normalization, 2018.
 *
 * Operands: in x[n][c][inner], scale[c], bias[c], all float32; out y. ints: n, c, inner, groups. floats: epsilon.
 * Sums as in rows.h; the variance about the mean in a second pass, to avoid cancellation. Makes three passes over a
 * group, which usually stays in cache.
 */
#include "rows.h"

typedef struct {
    const ht_call *call;
    int64_t rows, parts; /* a row: a group of one image */
} group_norms;

static void group_norm_part(void *context, int64_t part, int thread)
{
    const group_norms *job = (const group_norms *)context;
    const ht_call *call = job->call;
    const int64_t inner = call->ints[2], groups = call->ints[3], channels = call->ints[1] / groups;
    const int64_t width = channels * inner, end = ht_part_begin(job->rows, job->parts, part + 1);
    const float *scale = call->in[1]->data, *bias = call->in[2]->data;
    int64_t left = HT_PACE;
    (void)thread;
    for (int64_t row = ht_part_begin(job->rows, job->parts, part); row < end; row++) {
        if (ht_paced_stop(&left, width))
            return;
        const float *x = (const float *)call->in[0]->data + row * width;
        float *y = (float *)call->out[0]->data + row * width;
        float mean = (float)(ht_row_sum(x, width) / (double)width);
        const double variance = ht_row_variance(x, width, ht_row_scatter(x, width, mean), &mean);
        const float inverse = (float)(1.0 / sqrt(variance + call->floats[0]));
        const vf center = vf_set1(mean);
        for (int64_t k = 0; k < channels; k++, x += inner, y += inner) {
            const int64_t channel = row % groups * channels + k;
            const vf factor = vf_set1(scale[channel] * inverse), offset = vf_set1(bias[channel]);
            int64_t i = 0;
            HT_LONG_STEPS(i, VF_LANES, inner)
                vf_store(y + i, vf_fma(vf_load(x + i) - center, factor, offset));
            if (i < inner)
                vf_store_n(y + i, inner - i, vf_fma(vf_load_n(x + i, inner - i) - center, factor, offset));
        }
    }
}

int HT_KERNEL(group_norm)(const ht_call *call)
{
    if (call->num_in != 3 || call->num_out != 1 || call->num_ints != 4 || call->num_floats != 1)
        return HT_ERR_OPERAND;
    const int64_t n = call->ints[0], c = call->ints[1], inner = call->ints[2], groups = call->ints[3];
    if (n < 0 || c < 0 || inner < 0 || groups < 1 || c % groups != 0 || call->in[0]->size != n * c * inner ||
        call->out[0]->size != n * c * inner || call->in[1]->size != c || call->in[2]->size != c)
        return HT_ERR_OPERAND;
    for (int i = 0; i < 3; i++)
        if (call->in[i]->dtype != HT_FLOAT32)
            return HT_ERR_DTYPE;
    if (call->out[0]->dtype != HT_FLOAT32)
        return HT_ERR_DTYPE;
    if (call->in[0]->size == 0)
        return HT_OK;
    group_norms job = {call, n * groups, ht_parts(call, n * groups, 8 * (double)call->in[0]->size)};
    ht_parallel(call->team, job.parts, group_norm_part, &job);
    return HT_OK;
}
