/* Normalizations: batch_norm, layer_norm, lrn. All float32; sums as in rows.h, the variance about the mean in a second
 * pass, to avoid cancellation.
 *
 * batch_norm: y = (x - mean) / sqrt(var + epsilon) * scale + bias per channel.
 *   in x[n][c][inner], scale[c], bias[c], mean[c], var[c]; out y; y may be x. ints: n, c, inner. floats: epsilon.
 * layer_norm: the same over each row with the row's own mean and variance.
 *   in x[rows][width], scale[width], bias[width] or NULL, then optionally addend[rows][width]: then x + addend is
 *   normalized. out y (may be x or addend), then optionally x + addend itself. ints: rows, width, and optionally 1 to
 *   skip subtracting the mean and divide by the root mean square. floats: epsilon.
 * lrn: y = x / (k + alpha / size * sum of squares of the nearest `size` channels)^beta.
 *   in x[n][c][inner]; out y, not x. ints: n, c, inner, size. floats: alpha, beta, k.
 */
#include "rows.h"
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
    HT_LONG_STEPS(i, VF_LANES, n)
        vf_store(y + i, vf_fma(vf_load(x + i), f, o));
    if (i < n)
        vf_store_n(y + i, n - i, vf_fma(vf_load_n(x + i, n - i), f, o));
}

/* A call whose rows (planes, columns) the threads divide. */
typedef struct {
    const ht_call *call;
    int64_t rows, parts;
} rows_of_call;

static int run_rows(const ht_call *call, int64_t rows, double cost, ht_part_fn work)
{
    rows_of_call job = {call, rows, ht_parts(call, rows, cost)};
    ht_parallel(call->team, job.parts, work, &job);
    return HT_OK;
}

/* Plane by plane, those of one channel after the other: each channel's factor is computed once. */
static void batch_norm_part(void *context, int64_t part, int thread)
{
    const rows_of_call *job = (const rows_of_call *)context;
    const ht_call *call = job->call;
    const int64_t n = call->ints[0], c = call->ints[1], inner = call->ints[2];
    const int64_t begin = ht_part_begin(job->rows, job->parts, part), end = ht_part_begin(job->rows, job->parts, part + 1);
    const float *scale = call->in[1]->data, *bias = call->in[2]->data;
    const float *mean = call->in[3]->data, *variance = call->in[4]->data;
    double factor = 0, offset = 0;
    int64_t left = HT_PACE;
    (void)thread;
    for (int64_t plane = begin; plane < end; plane++) {
        if (ht_paced_stop(&left, inner))
            return;
        const int64_t channel = plane / n, at = (plane % n * c + channel) * inner;
        if (plane == begin || plane % n == 0) {
            factor = scale[channel] / sqrt((double)variance[channel] + call->floats[0]);
            offset = bias[channel] - mean[channel] * factor;
        }
        const float *x = (const float *)call->in[0]->data + at;
        float *y = (float *)call->out[0]->data + at;
        if (!isfinite((float)factor) || fabs(offset) > 0x1p64) { /* scale_row might give infinity minus infinity */
            HT_LONG_FOR (i, inner)
                y[i] = (float)(((double)x[i] - mean[channel]) * factor + bias[channel]);
            continue;
        }
        scale_row(x, y, inner, (float)factor, (float)offset);
    }
}

int HT_KERNEL(batch_norm)(const ht_call *call)
{
    if (call->num_ints != 3)
        return HT_ERR_OPERAND;
    const int64_t n = call->ints[0], c = call->ints[1], inner = call->ints[2];
    const int status = all_float32(call, 5, 3, 1, n * c * inner);
    if (status != HT_OK)
        return status;
    for (int i = 1; i < 5; i++)
        if (call->in[i]->size != c)
            return HT_ERR_OPERAND;
    return run_rows(call, n * c, 4 * (double)call->in[0]->size, batch_norm_part);
}

/* Layer normalization computes short rows in pairs, whose dependency chains hide each other's latency. The order of a
 * row's sums is the same alone and in a pair. `rows` is 1 or 2; row r of an operand begins at r * width. */
typedef struct {
    const float *x, *addend, *scale, *bias; /* addend, bias: or NULL */
    float *y, *sum;                         /* sum: destination of x + addend, may be y */
    int64_t width, ahead; /* ahead: distance from these rows to the next ones; 0 for the last */
    double epsilon;
    int root_mean_square;
} norm_rows;

/* Sums of the rows. With an addend: stores x + addend and sums that. */
HT_INLINE void sum_rows(const norm_rows *at, const int rows, const int added, double *total)
{
    const int64_t width = at->width;
    for (int64_t block = 0; block < width && !ht_stops_at(block); block += HT_ROW_BLOCK) {
        const int64_t end = ht_min64(width, block + HT_ROW_BLOCK);
        vf s[2][2];
        int64_t i = block;
        for (int r = 0; r < 2; r++)
            s[r][0] = s[r][1] = vf_set1(0.0f);
        for (; i + 2 * VF_LANES <= end; i += 2 * VF_LANES)
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
                for (int j = 0; j < 2; j++) {
                    const int64_t k = r * width + i + j * VF_LANES;
                    vf v = vf_load(at->x + k);
                    if (added) {
                        v += vf_load(at->addend + k);
                        vf_store(at->sum + k, v);
                    }
                    s[r][j] += v;
                }
        for (; i < end; i += VF_LANES) {
            const int64_t left = ht_min64(VF_LANES, end - i);
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) {
                const int64_t k = r * width + i;
                vf v = vf_load_n(at->x + k, left);
                if (added) {
                    v += vf_load_n(at->addend + k, left);
                    vf_store_n(at->sum + k, left, v);
                }
                s[r][0] += v;
            }
        }
        for (int r = 0; r < rows; r++)
            total[r] += vf_hsum(s[r][0] + s[r][1]);
    }
}

/* Sums of squares about each row's mean. Also prefetches the operands of the next rows. */
HT_INLINE void scatter_rows(const norm_rows *at, const float *x, const int rows, const float *center, double *total)
{
    const int64_t width = at->width;
    const float *next = at->x + at->ahead, *next_addend = (at->addend ? at->addend : at->x) + at->ahead;
    for (int64_t block = 0; block < width && !ht_stops_at(block); block += HT_ROW_BLOCK) {
        const int64_t end = ht_min64(width, block + HT_ROW_BLOCK);
        vf s[2][2], c[2];
        int64_t i = block;
        for (int r = 0; r < 2; r++) {
            s[r][0] = s[r][1] = vf_set1(0.0f);
            c[r] = vf_set1(center[r]);
        }
        for (; i + 2 * VF_LANES <= end; i += 2 * VF_LANES)
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
                for (int j = 0; j < 2; j++) {
                    const int64_t k = r * width + i + j * VF_LANES;
                    const vf v = vf_load(x + k) - c[r];
                    s[r][j] = vf_fma(v, v, s[r][j]);
                    __builtin_prefetch(next + k, 0, 2);
                    __builtin_prefetch(next_addend + k, 0, 2);
                }
        for (; i < end; i += VF_LANES)
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) {
                const vf v = vf_load_or(x + r * width + i, 0, ht_min64(VF_LANES, end - i), c[r]) - c[r];
                s[r][0] = vf_fma(v, v, s[r][0]);
            }
        for (int r = 0; r < rows; r++)
            total[r] += vf_hsum(s[r][0] + s[r][1]);
    }
}

/* Also prefetches the destination of the next rows' results. */
HT_INLINE void normalize_rows(const norm_rows *at, const float *x, const int rows, const int biased, const float *mean,
                              const float *factor)
{
    const int64_t width = at->width;
    const float *next = at->y + at->ahead;
    vf center[2], f[2];
    for (int r = 0; r < 2; r++) {
        center[r] = vf_set1(mean[r]);
        f[r] = vf_set1(factor[r]);
    }
    int64_t i = 0;
    HT_LONG_STEPS(i, VF_LANES, width) {
        const vf scale = vf_load(at->scale + i), offset = biased ? vf_load(at->bias + i) : vf_set1(0.0f);
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++) {
            const int64_t k = r * width + i;
            vf_store(at->y + k, vf_fma((vf_load(x + k) - center[r]) * f[r], scale, offset));
            __builtin_prefetch(next + k, 1, 2);
        }
    }
    if (i < width) {
        const int64_t left = width - i;
        const vf scale = vf_load_n(at->scale + i, left), offset = biased ? vf_load_n(at->bias + i, left) : vf_set1(0.0f);
#pragma GCC unroll 2
        for (int r = 0; r < rows; r++) {
            const vf v = (vf_load_n(x + r * width + i, left) - center[r]) * f[r];
            vf_store_n(at->y + r * width + i, left, vf_fma(v, scale, offset));
        }
    }
}

HT_INLINE void layer_norm_rows(const norm_rows *at, const int rows)
{
    const float *x = at->addend ? at->sum : at->x;
    double total[2] = {0, 0}, scatter[2] = {0, 0};
    float mean[2] = {0, 0}, factor[2] = {0, 0};
    if (at->addend)
        sum_rows(at, rows, 1, total);
    else if (!at->root_mean_square)
        sum_rows(at, rows, 0, total);
    if (!at->root_mean_square)
        for (int r = 0; r < rows; r++)
            mean[r] = (float)(total[r] / (double)at->width);
    scatter_rows(at, x, rows, mean, scatter);
    for (int r = 0; r < rows; r++) {
        const double variance = ht_row_variance(x + r * at->width, at->width, scatter[r], &mean[r]);
        factor[r] = (float)(1.0 / sqrt(variance + at->epsilon));
    }
    if (at->bias)
        normalize_rows(at, x, rows, 1, mean, factor);
    else
        normalize_rows(at, x, rows, 0, mean, factor);
}

static void layer_norm_part(void *context, int64_t part, int thread)
{
    const rows_of_call *job = (const rows_of_call *)context;
    const ht_call *call = job->call;
    const int64_t width = call->ints[1], end = ht_part_begin(job->rows, job->parts, part + 1);
    const ht_tensor *addend = call->num_in > 3 ? call->in[3] : NULL;
    const ht_tensor *sum = call->num_out > 1 ? call->out[1] : NULL;
    (void)thread;
    for (int64_t row = ht_part_begin(job->rows, job->parts, part), rows; row < end; row += rows) {
        const int64_t at = row * width;
        float *y = (float *)call->out[0]->data + at;
        rows = width <= HT_PAIR_WIDTH && row + 1 < end ? 2 : 1;
        norm_rows pair = {
            .x = (const float *)call->in[0]->data + at,
            .addend = addend ? (const float *)addend->data + at : NULL,
            .scale = call->in[1]->data,
            .bias = call->in[2] ? call->in[2]->data : NULL,
            .y = y,
            .sum = sum ? (float *)sum->data + at : y,
            .width = width,
            .epsilon = call->floats[0],
            .root_mean_square = call->num_ints > 2 && call->ints[2] != 0,
        };
        pair.ahead = row + 2 * rows <= end ? rows * width : 0;
        if (rows == 2)
            layer_norm_rows(&pair, 2);
        else
            layer_norm_rows(&pair, 1);
    }
}

int HT_KERNEL(layer_norm)(const ht_call *call)
{
    if (call->num_ints < 2 || call->num_in < 3)
        return HT_ERR_OPERAND;
    const int64_t rows = call->ints[0], width = call->ints[1];
    const ht_tensor *addend = call->num_in > 3 ? call->in[3] : NULL;
    const ht_tensor *sum = call->num_out > 1 ? call->out[1] : NULL;
    const int status = all_float32(call, call->num_in, call->num_ints, 1, rows * width);
    if (status != HT_OK)
        return status;
    if (call->in[1]->size != width || (call->in[2] && call->in[2]->size != width) ||
        (addend && addend->size != rows * width) || (sum && (!addend || sum->size != rows * width)))
        return HT_ERR_OPERAND;
    if (sum && sum->dtype != HT_FLOAT32)
        return HT_ERR_DTYPE;
    return run_rows(call, rows, 8 * (double)call->in[0]->size, layer_norm_part);
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

/* A row: LRN_COLUMNS columns of all channels of an image. */
enum { LRN_COLUMNS = 4 * VF_LANES };

static void lrn_part(void *context, int64_t part, int thread)
{
    const rows_of_call *job = (const rows_of_call *)context;
    const ht_call *call = job->call;
    const int64_t c = call->ints[1], inner = call->ints[2], size = call->ints[3];
    const int64_t across = ht_ceil_div(inner, LRN_COLUMNS), end = ht_part_begin(job->rows, job->parts, part + 1);
    const vf factor = vf_set1((float)(call->floats[0] / (double)size)), k = vf_set1((float)call->floats[2]);
    const float beta = (float)call->floats[1];
    const int64_t before = (size - 1) / 2, after = size - 1 - before;
    int64_t left = HT_PACE;
    (void)thread;
    for (int64_t row = ht_part_begin(job->rows, job->parts, part); row < end; row++) {
        const float *x = (const float *)call->in[0]->data + row / across * c * inner;
        float *y = (float *)call->out[0]->data + row / across * c * inner;
        const int64_t from = row % across * LRN_COLUMNS, to = ht_min64(inner, from + LRN_COLUMNS);
        for (int64_t i = from; i < to; i += VF_LANES) {
            const int64_t lanes = ht_min64(VF_LANES, to - i);
            for (int64_t channel = 0; channel < c; channel++) {
                if (ht_paced_stop(&left, VF_LANES + ht_min64(size, c)))
                    return;
                vf sum = vf_set1(0.0f);
                for (int64_t j = ht_max64(0, channel - before); j <= ht_min64(c - 1, channel + after); j++) {
                    const float *at = x + j * inner + i;
                    const vf value = lanes == VF_LANES ? vf_load(at) : vf_load_n(at, lanes);
                    sum = vf_fma(value, value, sum);
                }
                const vf value = vf_load_n(x + channel * inner + i, lanes);
                const vf result = lrn_divide(value, vf_fma(sum, factor, k), beta);
                vf_store_n(y + channel * inner + i, lanes, result);
            }
        }
    }
}

int HT_KERNEL(lrn)(const ht_call *call)
{
    if (call->num_ints != 4)
        return HT_ERR_OPERAND;
    const int64_t n = call->ints[0], c = call->ints[1], inner = call->ints[2], size = call->ints[3];
    const int status = all_float32(call, 1, 4, 3, n * c * inner);
    if (status != HT_OK)
        return status;
    if (size < 1)
        return HT_ERR_OPERAND;
    if (call->in[0]->size == 0)
        return HT_OK;
    return run_rows(call, n * ht_ceil_div(inner, LRN_COLUMNS), (double)(4 + ht_min64(size, c)) * (double)call->in[0]->size,
                    lrn_part);
}
