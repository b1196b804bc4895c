/* group_norm: y = (x - mean) / sqrt(variance + epsilon) * scale + bias, with mean and variance over a group of channels
 * of one image, and scale and bias per channel; with one channel in each group, instance normalization. Subtracting the
 * mean first makes equal elements exactly the bias: see ht_row_variance. Source: Wu and He, Group Normalization, 2018.
 *
 * Operands: in x[n][c][inner], scale[c], bias[c], all float32; out y, which may be x. ints: n, c, inner, groups.
 * floats: epsilon.
 * Sums as in rows.h; the variance about the mean in a second pass, to avoid cancellation. Makes three passes over a
 * group, which usually stays in cache. Threads take groups or, if there are few, share each pass over a group: the blocks
 * of rows.h, whose sums are added in the same order, then the rows of channels.
 */
#include "rows.h"

enum { MOST_BLOCKS = 4096 }; /* of a group that threads share: their sums are on the stack */

/* y of elements [begin, end) of channel k of the group `row`. */
static void normalize(const ht_call *call, int64_t row, int64_t k, int64_t begin, int64_t end, float mean, float inverse)
{
    const int64_t inner = call->ints[2], groups = call->ints[3], channels = call->ints[1] / groups;
    const int64_t channel = row % groups * channels + k, at = (row * channels + k) * inner + begin, count = end - begin;
    const float *x = (const float *)call->in[0]->data + at;
    float *y = (float *)call->out[0]->data + at;
    const vf center = vf_set1(mean), factor = vf_set1(((const float *)call->in[1]->data)[channel] * inverse);
    const vf offset = vf_set1(((const float *)call->in[2]->data)[channel]);
    int64_t i = 0;
    HT_LONG_STEPS(i, VF_LANES, count)
        vf_store(y + i, vf_fma(vf_load(x + i) - center, factor, offset));
    if (i < count)
        vf_store_n(y + i, count - i, vf_fma(vf_load_n(x + i, count - i) - center, factor, offset));
}

static float inverse_deviation(const ht_call *call, double variance)
{
    return (float)(1.0 / sqrt(variance + call->floats[0]));
}

typedef struct {
    const ht_call *call;
    int64_t rows, parts; /* a row: a group of one image */
} group_norms;

static void group_norm_part(void *context, int64_t part, int thread)
{
    const group_norms *job = (const group_norms *)context;
    const ht_call *call = job->call;
    const int64_t inner = call->ints[2], channels = call->ints[1] / call->ints[3], width = channels * inner;
    const int64_t end = ht_part_begin(job->rows, job->parts, part + 1);
    int64_t left = HT_PACE;
    (void)thread;
    for (int64_t row = ht_part_begin(job->rows, job->parts, part); row < end; row++) {
        if (ht_paced_stop(&left, width))
            return;
        const float *x = (const float *)call->in[0]->data + row * width;
        float mean = (float)(ht_row_sum(x, width) / (double)width);
        const float inverse =
            inverse_deviation(call, ht_row_variance(x, width, ht_row_scatter(x, width, mean), &mean));
        for (int64_t k = 0; k < channels; k++)
            normalize(call, row, k, 0, inner, mean, inverse);
    }
}

typedef enum { ELEMENTS, SQUARES_ABOUT_MEAN, DIFFERENCES_FROM_MEAN } term_kind;

/* A group that threads share. */
typedef struct {
    const ht_call *call;
    const float *x;
    int64_t row, width, blocks, parts;
    term_kind kind; /* what to sum */
    float mean, inverse;
    ht_row_units units; /* rows: channels */
    float sums[MOST_BLOCKS];
} shared_group;

static void sum_part(void *context, int64_t part, int thread)
{
    shared_group *job = (shared_group *)context;
    (void)thread;
    const int64_t end = ht_part_begin(job->blocks, job->parts, part + 1);
    for (int64_t block = ht_part_begin(job->blocks, job->parts, part); block < end; block++) {
        const float *x = job->x + block * HT_ROW_BLOCK;
        const int64_t n = ht_min64(HT_ROW_BLOCK, job->width - block * HT_ROW_BLOCK);
        job->sums[block] = (float)(job->kind == ELEMENTS             ? ht_row_sum(x, n)
                                   : job->kind == SQUARES_ABOUT_MEAN ? ht_row_scatter(x, n, job->mean)
                                                                      : ht_row_shift(x, n, job->mean));
    }
}

static void normalize_part(void *context, int64_t part, int thread)
{
    const shared_group *job = (const shared_group *)context;
    ht_row_walk walk = ht_walk_rows(&job->units, part);
    (void)thread;
    do
        normalize(job->call, job->row, walk.row, ht_walk_begin(&walk), ht_walk_end(&walk), job->mean, job->inverse);
    while (ht_walk_next(&walk));
}

/* The mean of the terms of the whole group; undefined if the run must end. */
static double shared_mean(shared_group *job, term_kind kind)
{
    job->kind = kind;
    job->parts = ht_parts(job->call, job->blocks, 3 * (double)job->width);
    ht_parallel(job->call->team, job->parts, sum_part, job);
    double total = 0;
    for (int64_t block = 0; block < job->blocks && !(block == 0 && ht_stopping()); block++)
        total += job->sums[block];
    return total / (double)job->width;
}

static void normalize_shared(shared_group *job, int64_t channels, int64_t inner)
{
    job->mean = (float)shared_mean(job, ELEMENTS);
    double variance = shared_mean(job, SQUARES_ABOUT_MEAN);
    if (ht_row_is_far(variance, job->mean))
        variance = ht_corrected_variance(variance, shared_mean(job, DIFFERENCES_FROM_MEAN), &job->mean);
    job->inverse = inverse_deviation(job->call, variance);
    job->units = ht_divide_rows(job->call, channels, inner, 3 * (double)job->width);
    ht_parallel(job->call->team, job->units.parts, normalize_part, job);
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
    const double cost = 8 * (double)call->in[0]->size;
    const int64_t width = c / groups * inner, blocks = ht_ceil_div(width, HT_ROW_BLOCK);
    if (n * groups < ht_wanted(call, cost) && blocks > 1 && blocks <= MOST_BLOCKS) {
        for (int64_t row = 0; row < n * groups && !ht_stopping(); row++) {
            shared_group job = {.call = call, .x = (const float *)call->in[0]->data + row * width, .row = row,
                                .width = width, .blocks = blocks};
            normalize_shared(&job, c / groups, inner);
        }
        return HT_OK;
    }
    group_norms job = {call, n * groups, ht_parts(call, n * groups, cost)};
    ht_parallel(call->team, job.parts, group_norm_part, &job);
    return HT_OK;
}
