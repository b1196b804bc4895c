/* attention: y = softmax(scores) V with scores = alpha Q K' + bias + addend, for every matrix of a batch. float32. K
 *   and V are packed first. Then one block of Q's rows at a time is combined with all of K and V, so that its scores
 *   stay in the cache. One mask replaces scores by a number; another replaces results of the softmax.
 *
 * in: Q, K, V; then bias, addend, mask of scores, mask after (bool), each or NULL. out: y.
 * ints: m, n (rows of Q; of K and V), d, e (columns of Q and K; of V and y); the mask value (0 or 1) at which the first
 *   mask replaces a score, and the same for the second mask (2: no mask, the number replaces NaN); strides, in
 *   elements: Q's rows and columns, K's, V's, y's rows (its columns are dense), bias's rows and columns, addend's rows
 *   (its columns are dense), both masks' rows and columns (columns of bias and masks: 0 or 1); offsets of Q, K, V; b,
 *   the batch's dims[b], and strides[b] of each of Q, K, V, y, bias, addend, the masks. K and V must each have a stride
 *   of 1, for rows or columns; each element of y is written once.
 * floats: alpha, the number that replaces scores, the number that replaces results.
 * scratch: 4 bytes times d ceil16(n) + n ceil16(e) + rows n, with rows = max(24, min(m, 8192 / n)).
 *
 * Threads take blocks of rows, so many that all threads get as many rows. Each thread packs the keys and values of a matrix
 * when its first block comes. No result depends on the other rows of its block.
 */
#include "blocks.h"
#include "elements.h"
#include "gemm_micro.h"
#include "softmax.h"

enum {
    FIXED_INTS = 24, /* ints before the batch's dims */
    OPERANDS = 8     /* rows of the table of strides: see the enum below */
};
enum { Q, K, V, Y, BIAS, ADDEND, MASK, AFTER };

typedef struct {
    const ht_call *call;
    int64_t m, n, d, e;
    const int64_t *row, *column, *offset, *dims, *strides; /* strides: [OPERANDS][ndim] */
    int64_t ndim, batch, blocks, parts;
    int64_t packed[HT_MAX_THREADS]; /* by thread: the matrix whose keys and values are in its scratch memory, or -1 */
} attention;

static int64_t start_of(const attention *job, int operand, int64_t i)
{
    int64_t at = operand <= V ? job->offset[operand] : 0;
    for (int64_t axis = job->ndim - 1; axis >= 0; axis--) {
        at += i % job->dims[axis] * job->strides[operand * job->ndim + axis];
        i /= job->dims[axis];
    }
    return at;
}

/* C = A x B, B packed, in blocks of k. */
static void multiply(const float *a, int64_t a_row, int64_t a_k, const float *b, float *c, int64_t c_row, int64_t rows,
                     int64_t columns, int64_t k, const ht_epilogue *epilogue)
{
    const int64_t blocks = ht_max64(1, ht_ceil_div(k, HT_BLOCK_K)), step = ht_ceil_div(k, blocks);
    for (int64_t block = 0; block < blocks; block++) {
        const int64_t k0 = block * step;
        ht_tile t = {.a = a + k0 * a_k, .a_row = a_row, .a_k = a_k, .b = b + k0 * HT_PANEL, .b_k = HT_PANEL,
                     .b_panel = k * HT_PANEL, .c = c, .c_row = c_row, .k = ht_min64(step, k - k0),
                     .accumulate = block > 0, .epilogue = block == blocks - 1 ? epilogue : NULL};
        ht_gemm_block(&t, 0, rows, columns);
    }
}

/* Replaces elements of x[rows][n] by a number: where a mask equals `when`, or, if `when` is 2, where they are NaN. */
static void put(const attention *job, int operand, int64_t i, int64_t first, int64_t rows, float *x, int64_t when, float number)
{
    const ht_tensor *mask = job->call->in[operand - 1];
    const int64_t n = job->n, row = job->row[operand], column = job->column[operand];
    if (when == 2) {
        for (int64_t j = 0; j < rows * n; j++)
            x[j] = x[j] != x[j] ? number : x[j];
        return;
    }
    if (!mask)
        return;
    const uint8_t *at = (const uint8_t *)mask->data + start_of(job, operand, i) + first * row;
    for (int64_t r = 0; r < rows; r++, at += row, x += n) {
        if (column == 0) {
            if ((at[0] != 0) == when)
                for (int64_t j = 0; j < n; j++)
                    x[j] = number;
            continue;
        }
        for (int64_t j = 0; j < n; j++)
            x[j] = (at[j] != 0) == when ? number : x[j];
    }
}

static void attention_part(void *context, int64_t part, int thread)
{
    attention *job = (attention *)context;
    const ht_call *call = job->call;
    const int64_t m = job->m, n = job->n, d = job->d, e = job->e;
    const int64_t *row = job->row, *column = job->column;
    float *keys = (float *)ht_scratch(call, thread), *values = keys + ht_ceil_div(n, HT_PANEL) * HT_PANEL * d;
    float *scores = values + ht_ceil_div(e, HT_PANEL) * HT_PANEL * n;
    const float *data[OPERANDS] = {call->in[Q]->data, call->in[K]->data, call->in[V]->data};
    for (int k = BIAS; k <= ADDEND; k++)
        data[k] = call->in[k - 1] ? call->in[k - 1]->data : NULL;
    const int64_t end = ht_part_begin(job->batch * job->blocks, job->parts, part + 1);
    for (int64_t unit = ht_part_begin(job->batch * job->blocks, job->parts, part); unit < end && !ht_stopping(); unit++) {
        const int64_t i = unit / job->blocks, first = ht_part_begin(m, job->blocks, unit % job->blocks);
        const int64_t rows = ht_part_begin(m, job->blocks, unit % job->blocks + 1) - first;
        if (i != job->packed[thread]) {
            const float *k = data[K] + start_of(job, K, i), *v = data[V] + start_of(job, V, i);
            ht_pack_panels(k, column[K] == 1 ? row[K] : column[K], column[K] == 1, d, n, keys, d);
            ht_pack_panels(v, column[V] == 1 ? row[V] : column[V], column[V] != 1, n, e, values, n);
            job->packed[thread] = i;
        }
        ht_epilogue epilogue = {.alpha = (float)call->floats[0], .beta = 1.0f, .low = -INFINITY, .high = INFINITY,
                                .bias_row = row[BIAS], .bias_col = column[BIAS], .addend_row = row[ADDEND]};
        if (data[BIAS])
            epilogue.bias = data[BIAS] + start_of(job, BIAS, i) + first * row[BIAS];
        if (data[ADDEND])
            epilogue.addend = data[ADDEND] + start_of(job, ADDEND, i) + first * row[ADDEND];
        multiply(data[Q] + start_of(job, Q, i) + first * row[Q], row[Q], column[Q], keys, scores, n, rows, n, d, &epilogue);
        put(job, MASK, i, first, rows, scores, call->ints[4], (float)call->floats[1]);
        ht_softmax_rows(scores, scores, rows, n);
        put(job, AFTER, i, first, rows, scores, call->ints[5], (float)call->floats[2]);
        float *y = (float *)call->out[0]->data + start_of(job, Y, i) + first * row[Y];
        multiply(scores, n, 1, values, y, row[Y], rows, e, n, NULL);
    }
}

/* Do all matrices of an operand, of `rows` times `columns` elements, lie inside it? */
static int lies_inside(const attention *job, int operand, const ht_tensor *x, int64_t rows, int64_t columns)
{
    int64_t last = operand <= V ? job->offset[operand] : 0;
    if (last < 0 || job->row[operand] < 0 || job->column[operand] < 0)
        return 0;
    for (int64_t axis = 0; axis < job->ndim; axis++) {
        int64_t reach;
        if (job->strides[operand * job->ndim + axis] < 0 ||
            __builtin_mul_overflow(job->dims[axis] - 1, job->strides[operand * job->ndim + axis], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return 0;
    }
    int64_t down, across;
    return !__builtin_mul_overflow(rows - 1, job->row[operand], &down) &&
           !__builtin_mul_overflow(columns - 1, job->column[operand], &across) &&
           !__builtin_add_overflow(last, down, &last) && !__builtin_add_overflow(last, across, &last) && last < x->size;
}

/* Sets the number of blocks of each matrix that takes the minimum time, at least as many as the scratch memory asks for, and
 * of parts, for each of which a thread works at least 3 µs. */
static void divide(attention *job)
{
    enum { PART = 100000 }; /* multiply-adds */
    const double cost = (double)(job->batch * job->m) * (double)job->n * (double)(job->d + job->e);
    const int64_t fewest = ht_ceil_div(job->m, ht_attention_rows(job->m, job->n)), wanted = ht_wanted(job->call, cost);
    const int64_t threads = job->call->team ? ht_team_threads(job->call->team) : 1;
    double least = INFINITY;
    job->blocks = fewest;
    for (int64_t blocks = fewest; wanted > 1 && blocks < fewest + threads && blocks * HT_TILE_ROWS <= job->m; blocks++) {
        const double time = ht_rounds(job->batch * blocks, threads) * (double)ht_ceil_div(job->m, blocks);
        if (time < least) {
            least = time;
            job->blocks = blocks;
        }
    }
    const int64_t units = job->batch * job->blocks;
    const int64_t most = ht_max64(wanted, cost < (double)PART * HT_MAX_PARTS ? (int64_t)(cost / PART) : HT_MAX_PARTS);
    job->parts = wanted > 1 ? ht_min64(units, most) : 1;
    for (int64_t i = 0; i < threads; i++)
        job->packed[i] = -1;
}

int HT_KERNEL(attention)(const ht_call *call)
{
    const int64_t *ints = call->ints;
    if (call->num_in != OPERANDS - 1 || call->num_out != 1 || call->num_floats != 3 || call->num_ints < FIXED_INTS)
        return HT_ERR_OPERAND;
    const int64_t row[OPERANDS] = {ints[6], ints[8], ints[10], ints[12], ints[13], ints[15], ints[16], ints[18]};
    const int64_t column[OPERANDS] = {ints[7], ints[9], ints[11], 1, ints[14], 1, ints[17], ints[19]};
    attention job = {.call = call, .m = ints[0], .n = ints[1], .d = ints[2], .e = ints[3], .row = row, .column = column,
                     .offset = ints + 20, .ndim = ints[23], .dims = ints + FIXED_INTS, .batch = 1};
    if (job.ndim < 0 || job.ndim > HT_MAX_DIMS || call->num_ints != FIXED_INTS + (1 + OPERANDS) * job.ndim)
        return HT_ERR_OPERAND;
    job.strides = job.dims + job.ndim;
    for (int i = 0; i < 4; i++)
        if (ints[i] < 1 || ints[i] > HT_ATTENTION_MAX_DIM) /* strides of 0 would make a small operand fit any size */
            return HT_ERR_OPERAND;
    if (ints[4] < 0 || ints[4] > 1 || ints[5] < 0 || ints[5] > 2)
        return HT_ERR_OPERAND;
    for (int64_t axis = 0; axis < job.ndim; axis++)
        if (job.dims[axis] < 1 || __builtin_mul_overflow(job.batch, job.dims[axis], &job.batch) ||
            job.batch > (int64_t)1 << 32)
            return HT_ERR_OPERAND;
    const int64_t sizes[OPERANDS][2] = {{job.m, job.d}, {job.n, job.d}, {job.n, job.e}, {job.m, job.e},
                                        {job.m, job.n}, {job.m, job.n}, {job.m, job.n}, {job.m, job.n}};
    for (int k = 0; k < OPERANDS; k++) {
        const ht_tensor *x = k == Y ? call->out[0] : call->in[k < Y ? k : k - 1];
        if (!x) {
            if (k <= Y)
                return HT_ERR_OPERAND;
            continue;
        }
        if (x->dtype != (k >= MASK ? HT_BOOL : HT_FLOAT32))
            return HT_ERR_DTYPE;
        if (!lies_inside(&job, k, x, sizes[k][0], sizes[k][1]) || (k >= BIAS && column[k] > 1))
            return HT_ERR_OPERAND;
    }
    if ((column[K] != 1 && row[K] != 1) || (column[V] != 1 && row[V] != 1))
        return HT_ERR_OPERAND;
    if (call->scratch_bytes < ht_scratch_attention(job.m, job.n, job.d, job.e))
        return HT_ERR_OPERAND;
    divide(&job);
    ht_parallel(call->team, job.parts, attention_part, &job);
    return HT_OK;
}
