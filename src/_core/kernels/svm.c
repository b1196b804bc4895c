/* Support vector machines: distances to support vectors, scores of pairs of classes, votes and probabilities.
 *
 * squared_distances: in x[rows][features], vectors[features][count]; out y[rows][count], all float32: the sum over the
 * features of (x - v)^2, in the order of the features. Cost: 2 * rows * features * count.
 *
 * svm_scores: in kernels[rows][vectors] and coefficients[classes - 1][vectors], float32; starts int64[classes + 1];
 * rho float32[pairs]; out float32[rows][pairs], pairs = classes * (classes - 1) / 2. ints: classes. The vectors of class
 * c are starts[c] to starts[c + 1] - 1. The score of classes i < j is rho plus the sum of kernels times coefficients over
 * the vectors of i (row j - 1 of the coefficients) and those of j (row i), added in float64.
 *
 * svm_votes: in scores float32[rows][pairs]; a, b float32[pairs], or both absent; out places int64[rows], and with a and b
 * probabilities float32[rows][classes]. ints: classes. A pair votes for its first class if its score is above 0, else for
 * its second. places: the class with the most votes, the first of equal ones. Probabilities: of each pair
 * 1 / (1 + exp(a * score + b)), coupled by the second method of Wu, Lin and Weng (Journal of Machine Learning Research 5,
 * 2004), as in libsvm, in float32. Scratch: ht_scratch_svm_votes.
 *
 * The planner checks that starts ascend from 0 to the number of vectors. */
#include "elements.h"
#include "vec.h"

#include <math.h>

enum { ROWS = 4 /* of a tile */, SUMS = 8 /* partial sums of a product */ };

typedef struct {
    const ht_call *call;
    int64_t rows, parts, count, features, classes, pairs;
} job;

/* Rows [row, row + ROWS) by 2 * VF_LANES columns, or the first `rows` and `columns` of these. */
static void distances_tile(const float *x, const float *vectors, float *y, int64_t features, int64_t count, int rows,
                           int64_t columns)
{
    vf sums[ROWS][2];
    const float *lines[ROWS];
    const int64_t first = ht_min64(columns, VF_LANES), second = columns - first;
    for (int r = 0; r < ROWS; r++) {
        sums[r][0] = sums[r][1] = vf_set1(0);
        lines[r] = x + (r < rows ? r : 0) * features;
    }
    for (int64_t f = 0; f < features; f++) {
        const float *line = vectors + f * count;
        const vf a = first == VF_LANES ? vf_load(line) : vf_load_n(line, first);
        const vf b = second == VF_LANES ? vf_load(line + VF_LANES) : vf_load_n(line + first, second);
        for (int r = 0; r < ROWS; r++) {
            const vf value = vf_set1(lines[r][f]), d = value - a, e = value - b;
            sums[r][0] = vf_fma(d, d, sums[r][0]);
            sums[r][1] = vf_fma(e, e, sums[r][1]);
        }
    }
    for (int r = 0; r < rows; r++) {
        vf_store_n(y + r * count, first, sums[r][0]);
        vf_store_n(y + r * count + first, second, sums[r][1]);
    }
}

static void distances_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const job *j = (const job *)context;
    const float *x = (const float *)j->call->in[0]->data, *vectors = (const float *)j->call->in[1]->data;
    float *y = (float *)j->call->out[0]->data;
    const int64_t end = ht_part_begin(j->rows, j->parts, part + 1);
    int64_t left = HT_PACE;
    for (int64_t row = ht_part_begin(j->rows, j->parts, part); row < end; row += ROWS)
        for (int64_t column = 0; column < j->count; column += 2 * VF_LANES) {
            const int64_t columns = ht_min64(2 * VF_LANES, j->count - column);
            if (ht_paced_stop(&left, j->features))
                return;
            distances_tile(x + row * j->features, vectors + column, y + row * j->count + column, j->features, j->count,
                           (int)ht_min64(ROWS, end - row), columns);
        }
}

int HT_KERNEL(squared_distances)(const ht_call *call)
{
    if (call->num_in != 2 || call->num_out != 1 || call->in[0]->ndim != 2 || call->in[1]->ndim != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *vectors = call->in[1];
    const ht_tensor *y = call->out[0];
    if (x->dtype != HT_FLOAT32 || vectors->dtype != HT_FLOAT32 || y->dtype != HT_FLOAT32)
        return HT_ERR_DTYPE;
    job j = {.call = call, .rows = x->dims[0], .features = x->dims[1], .count = vectors->dims[1]};
    if (vectors->dims[0] != j.features || y->size != j.rows * j.count)
        return HT_ERR_OPERAND;
    const double cost = (double)j.rows * (double)j.features * (double)j.count / 4;
    j.parts = ht_parts(call, j.rows, cost);
    ht_parallel(call->team, j.parts, distances_part, &j);
    return HT_OK;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sums[SUMS] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + SUMS <= n; i += SUMS)
        for (int s = 0; s < SUMS; s++)
            sums[s] += (double)a[i + s] * (double)b[i + s];
    for (; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    for (int s = 0; s < SUMS; s++)
        sum += sums[s];
    return sum;
}

static void scores_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const job *job_ = (const job *)context;
    const float *kernels = (const float *)job_->call->in[0]->data, *coefficients = (const float *)job_->call->in[1]->data;
    const int64_t *starts = (const int64_t *)job_->call->in[2]->data;
    const float *rho = (const float *)job_->call->in[3]->data;
    float *out = (float *)job_->call->out[0]->data;
    const int64_t count = job_->count, classes = job_->classes, end = ht_part_begin(job_->rows, job_->parts, part + 1);
    int64_t left = HT_PACE;
    for (int64_t row = ht_part_begin(job_->rows, job_->parts, part); row < end; row++) {
        const float *line = kernels + row * count;
        const float *next = rho;
        float *score = out + row * job_->pairs;
        for (int64_t i = 0; i < classes; i++)
            for (int64_t j = i + 1; j < classes; j++) {
                const int64_t mine = starts[i + 1] - starts[i], others = starts[j + 1] - starts[j];
                if (ht_paced_stop(&left, mine + others))
                    return;
                const double sum = dot(coefficients + (j - 1) * count + starts[i], line + starts[i], mine) +
                                   dot(coefficients + i * count + starts[j], line + starts[j], others);
                *score++ = (float)(sum + (double)*next++);
            }
    }
}

int HT_KERNEL(svm_scores)(const ht_call *call)
{
    if (call->num_in != 4 || call->num_out != 1 || call->num_ints != 1 || call->in[0]->ndim != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *kernels = call->in[0];
    const int64_t classes = call->ints[0];
    if (kernels->dtype != HT_FLOAT32 || call->in[1]->dtype != HT_FLOAT32 || call->in[2]->dtype != HT_INT64 ||
        call->in[3]->dtype != HT_FLOAT32 || call->out[0]->dtype != HT_FLOAT32)
        return HT_ERR_DTYPE;
    if (classes < 2 || classes > HT_SVM_MAX_CLASSES)
        return HT_ERR_OPERAND;
    job j = {.call = call, .rows = kernels->dims[0], .count = kernels->dims[1], .classes = classes,
             .pairs = classes * (classes - 1) / 2};
    if (call->in[1]->size != (classes - 1) * j.count || call->in[2]->size != classes + 1 || call->in[3]->size != j.pairs ||
        call->out[0]->size != j.rows * j.pairs)
        return HT_ERR_OPERAND;
    const int64_t *starts = (const int64_t *)call->in[2]->data;
    for (int64_t c = 0; c < classes; c++)
        if (starts[c] < 0 || starts[c + 1] < starts[c] || starts[c + 1] > j.count)
            return HT_ERR_OPERAND;
    j.parts = ht_parts(call, j.rows, (double)j.rows * (double)j.count * (double)classes);
    ht_parallel(call->team, j.parts, scores_part, &j);
    return HT_OK;
}

/* The probabilities p[k] from those of pairs, r[k][k]; q[k][k] and qp[k] are scratch. */
static void couple(float *p, const float *r, float *q, float *qp, int64_t k, int64_t *left)
{
    const float tolerance = 0.005f / (float)k;
    for (int64_t i = 0; i < k; i++) {
        p[i] = 1.0f / (float)k;
        float own = 0;
        for (int64_t j = 0; j < k; j++)
            if (j != i) {
                own += r[j * k + i] * r[j * k + i];
                q[i * k + j] = j < i ? q[j * k + i] : -r[j * k + i] * r[i * k + j];
            }
        q[i * k + i] = own;
    }
    for (int round = 0; round < 100; round++) {
        if (ht_paced_stop(left, 4 * k * k))
            return;
        float total = 0, worst = 0;
        for (int64_t i = 0; i < k; i++) {
            float sum = 0;
            for (int64_t j = 0; j < k; j++)
                sum += q[i * k + j] * p[j];
            qp[i] = sum;
            total += p[i] * sum;
        }
        for (int64_t i = 0; i < k; i++) {
            const float error = fabsf(qp[i] - total);
            worst = error > worst ? error : worst;
        }
        if (worst < tolerance)
            break;
        for (int64_t i = 0; i < k; i++) {
            const float step = (total - qp[i]) / q[i * k + i], scale = 1 + step;
            p[i] += step;
            total = (total + step * (step * q[i * k + i] + 2 * qp[i])) / scale / scale;
            for (int64_t j = 0; j < k; j++) {
                qp[j] = (qp[j] + step * q[i * k + j]) / scale;
                p[j] /= scale;
            }
        }
    }
}

static float pair_probability(float score, float a, float b)
{
    const float value = score * a + b, part = 1 / (1 + expf(-fabsf(value)));
    const float found = value < 0 ? part : 1 - part;
    return found < 1e-7f ? 1e-7f : found > 1 - 1e-7f ? 1 - 1e-7f : found;
}

static void votes_part(void *context, int64_t part, int thread)
{
    const job *job_ = (const job *)context;
    const ht_call *call = job_->call;
    const int64_t k = job_->classes, end = ht_part_begin(job_->rows, job_->parts, part + 1);
    const float *a = call->in[1] ? (const float *)call->in[1]->data : NULL;
    const float *b = call->in[2] ? (const float *)call->in[2]->data : NULL;
    float *r = (float *)ht_scratch(call, thread), *q = r + k * k, *qp = q + k * k;
    int32_t *votes = (int32_t *)(qp + k);
    int64_t left = HT_PACE;
    for (int64_t row = ht_part_begin(job_->rows, job_->parts, part); row < end; row++) {
        const float *score = (const float *)call->in[0]->data + row * job_->pairs;
        if (ht_paced_stop(&left, k * k))
            return;
        memset(votes, 0, (size_t)k * sizeof *votes);
        for (int64_t i = 0, pair = 0; i < k; i++)
            for (int64_t j = i + 1; j < k; j++, pair++) {
                votes[score[pair] > 0 ? i : j]++;
                if (a) {
                    r[i * k + j] = pair_probability(score[pair], a[pair], b[pair]);
                    r[j * k + i] = 1 - r[i * k + j];
                }
            }
        int64_t most = 0;
        for (int64_t i = 1; i < k; i++)
            if (votes[i] > votes[most])
                most = i;
        ((int64_t *)call->out[0]->data)[row] = most;
        if (a)
            couple((float *)call->out[1]->data + row * k, r, q, qp, k, &left);
    }
}

int HT_KERNEL(svm_votes)(const ht_call *call)
{
    if (call->num_in != 3 || call->num_ints != 1 || call->in[0]->ndim != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *scores = call->in[0], *a = call->in[1], *b = call->in[2];
    const int64_t classes = call->ints[0];
    if (scores->dtype != HT_FLOAT32 || call->out[0]->dtype != HT_INT64)
        return HT_ERR_DTYPE;
    if (classes < 2 || classes > HT_SVM_MAX_CLASSES || !a != !b || call->num_out != (a ? 2 : 1))
        return HT_ERR_OPERAND;
    job j = {.call = call, .rows = scores->dims[0], .classes = classes, .pairs = classes * (classes - 1) / 2};
    if (scores->dims[1] != j.pairs || call->out[0]->size != j.rows || call->scratch_bytes < ht_scratch_svm_votes(classes))
        return HT_ERR_OPERAND;
    if (a && (a->dtype != HT_FLOAT32 || b->dtype != HT_FLOAT32 || call->out[1]->dtype != HT_FLOAT32))
        return HT_ERR_DTYPE;
    if (a && (a->size != j.pairs || b->size != j.pairs || call->out[1]->size != j.rows * classes))
        return HT_ERR_OPERAND;
    j.parts = ht_parts(call, j.rows, (double)j.rows * (double)classes * (double)classes * (a ? 40 : 2));
    ht_parallel(call->team, j.parts, votes_part, &j);
    return HT_OK;
}
