/* Reading by index. Indices are int32 or int64; negative ones count from the end of their axis; one outside its axis
 * gives HT_ERR_NOTED_INDEX. Elements are only moved: any dtype.
 *
 *   gather            in data, indices; ints = axis.  out dims = data[:axis] + indices + data[axis+1:]
 *   gather_elements   in data, indices; ints = axis.  out dims = indices' dims; same rank as data, other axes not longer
 *   gather_nd         in data, indices; ints = batch dims.  indices[..., k] names k axes of data after the batch dims
 */
#include "indices.h"
#include "vec.h"

#include <string.h>

static inline void move(char *out, const char *from, int64_t bytes)
{
    if (bytes == 4)
        memcpy(out, from, 4);
    else if (bytes == 8)
        memcpy(out, from, 8);
    else
        ht_long_copy(out, from, bytes);
}

/* Checks the conditions that all three share; the first operands are data and indices. */
static int check(const ht_call *call)
{
    if (call->num_in != 2 || call->num_out != 1 || call->num_ints != 1 || !ht_is_index_type(call->in[1]->dtype) ||
        call->in[0]->dtype != call->out[0]->dtype)
        return HT_ERR_OPERAND;
    return ht_element_bytes(call->in[0]->dtype) ? HT_OK : HT_ERR_DTYPE;
}

enum {
    SOME = 1024, /* rows copied between two checks of whether the run must stop */
    FEW = 16,    /* indices, at most, that are checked once for all rows */
};

/* Copies the rows that indices `begin` to `end` select. Returns 0 if one is outside [-size, size). */
static int move_rows(const ht_tensor *indices, int64_t begin, int64_t end, int64_t size, const char *from, char *out,
                     int64_t bytes)
{
    for (int64_t i = begin; i < end; i++, out += bytes) {
        const int64_t index = ht_index_at(indices, i, size);
        if (index < 0)
            return 0;
        move(out, from + index * bytes, bytes);
    }
    return 1;
}

/* A gather: rows of `bytes` bytes of the result, one for each index of each outer element. */
typedef struct {
    const ht_call *call;
    int64_t size, bytes, rows, parts; /* size: of the axis */
    int picks;                        /* few pieces of 4 or 8 bytes, see pick_part; rows then counts the outer elements */
    _Atomic int status;
} gathering;

/* out = pieces of BYTES bytes: those at the same places of each of the adjacent rows of `step` bytes. */
#define PICK(BYTES)                                                                                                   \
    static void pick_##BYTES(const char *from, int64_t step, const int64_t *places, int64_t count, int64_t rows,      \
                             char *out)                                                                               \
    {                                                                                                                 \
        for (int64_t row = 0; row < rows; row++, from += step)                                                        \
            for (int64_t i = 0; i < count; i++, out += BYTES)                                                         \
                memcpy(out, from + BYTES * places[i], BYTES);                                                         \
    }
PICK(4)
PICK(8)

/* A part of a gather of few pieces from each of many rows: the indices are checked once. */
static void pick_part(const gathering *job, int64_t begin, int64_t end, const int64_t *places)
{
    const ht_tensor *indices = job->call->in[1];
    const char *from = (const char *)job->call->in[0]->data;
    char *out = (char *)job->call->out[0]->data;
    const int64_t count = indices->size, step = job->size * job->bytes;
    int64_t left = HT_PACE;
    for (int64_t row = begin, some; row < end; row += some) {
        some = ht_min64(SOME, end - row);
        if (job->bytes == 4)
            pick_4(from + row * step, step, places, count, some, out + row * count * 4);
        else
            pick_8(from + row * step, step, places, count, some, out + row * count * 8);
        if (ht_paced_stop(&left, some * count))
            return;
    }
}

static void gather_part(void *context, int64_t part, int thread)
{
    gathering *job = (gathering *)context;
    const ht_tensor *indices = job->call->in[1];
    const int64_t bytes = job->bytes, some = bytes > HT_PACE / SOME ? 1 : SOME;
    const int64_t last = ht_part_begin(job->rows, job->parts, part + 1);
    int64_t left = HT_PACE;
    (void)thread;
    if (job->picks) {
        int64_t places[FEW];
        for (int64_t i = 0; i < indices->size; i++)
            if ((places[i] = ht_index_at(indices, i, job->size)) < 0) {
                job->status = HT_ERR_INDEX;
                return;
            }
        pick_part(job, ht_part_begin(job->rows, job->parts, part), last, places);
        return;
    }
    for (int64_t row = ht_part_begin(job->rows, job->parts, part), end; row < last; row = end) {
        const int64_t outer = row / indices->size, i = row % indices->size;
        end = ht_min64(last, ht_min64(row + some, (outer + 1) * indices->size));
        const char *from = (const char *)job->call->in[0]->data + outer * job->size * bytes;
        if (!move_rows(indices, i, i + end - row, job->size, from, (char *)job->call->out[0]->data + row * bytes, bytes)) {
            job->status = HT_ERR_INDEX;
            return;
        }
        if (ht_paced_stop(&left, some * bytes))
            return;
    }
}

int HT_KERNEL(gather)(const ht_call *call)
{
    const int status = check(call);
    if (status != HT_OK)
        return status;
    const ht_tensor *data = call->in[0], *indices = call->in[1];
    const int64_t axis = call->ints[0];
    if (axis < 0 || axis >= data->ndim)
        return HT_ERR_OPERAND;
    const int64_t outer = ht_product(data->dims, 0, (int)axis);
    const int64_t inner = ht_product(data->dims, (int)axis + 1, data->ndim);
    gathering job = {.call = call, .size = data->dims[axis], .bytes = inner * ht_element_bytes(data->dtype),
                     .rows = outer * indices->size};
    if (call->out[0]->size != job.rows * inner)
        return HT_ERR_OPERAND;
    job.parts = ht_min64(job.rows, ht_wanted(call, (double)job.rows * (8 + (double)job.bytes)));
    if (outer > 1 && indices->size <= FEW && (job.bytes == 4 || job.bytes == 8)) {
        job.picks = 1;
        job.rows = outer;
        job.parts = ht_min64(job.rows, job.parts);
    }
    ht_parallel(call->team, job.parts, gather_part, &job);
    return job.status == HT_OK ? HT_OK : ht_index_failure(indices, data, (int)axis, 1);
}

/* Indices 0 to n - 1 of a row as places in an axis of `size`; returns 0 if one is outside [-size, size). Checks and moves
 * are two loops, because the compiler vectorizes the first and pipelines the second. */
#define PLACES(I)                                                                                                     \
    static int places_##I(const I *index, int64_t n, int64_t size, int64_t *places)                                   \
    {                                                                                                                 \
        uint64_t outside = 0;                                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                                             \
            const int64_t at = (int64_t)index[i] + ((int64_t)index[i] < 0 ? size : 0);                                \
            outside |= (uint64_t)at | ((uint64_t)size - 1 - (uint64_t)at); /* bit 63: negative, or size or more */    \
            places[i] = at;                                                                                           \
        }                                                                                                             \
        return outside >> 63 == 0;                                                                                    \
    }
PLACES(int32_t)
PLACES(int64_t)

/* out[i] = from[i * lane + places[i] * step] */
typedef void (*take_fn)(const void *from, const int64_t *places, void *out, int64_t n, int64_t lane, int64_t step);
#define TAKE(T)                                                                                                       \
    static void take_##T(const void *pfrom, const int64_t *places, void *pout, int64_t n, int64_t lane, int64_t step) \
    {                                                                                                                 \
        const T *from = (const T *)pfrom;                                                                             \
        T *out = (T *)pout;                                                                                           \
        if (lane == 0 && step == 1)                                                                                   \
            _Pragma("GCC unroll 8") for (int64_t i = 0; i < n; i++)                                                   \
                out[i] = from[places[i]];                                                                             \
        else                                                                                                          \
            for (int64_t i = 0; i < n; i++)                                                                           \
                out[i] = from[i * lane + places[i] * step];                                                           \
    }
TAKE(uint8_t)
TAKE(uint16_t)
TAKE(uint32_t)
TAKE(uint64_t)

/* gather_elements: rows of the result. */
typedef struct {
    const ht_call *call;
    ht_index_walk walk; /* at the first element */
    ht_row_units rows;
    _Atomic int status;
} taking;

static void take_part(void *context, int64_t part, int thread)
{
    taking *job = (taking *)context;
    const ht_tensor *data = job->call->in[0], *indices = job->call->in[1];
    const int64_t axis = job->call->ints[0], bytes = ht_element_bytes(data->dtype);
    const take_fn take = bytes == 1 ? take_uint8_t : bytes == 2 ? take_uint16_t : bytes == 4 ? take_uint32_t : take_uint64_t;
    const int last = data->ndim - 1;
    int64_t places[SOME];
    ht_index_walk walk = job->walk;
    ht_row_walk rows = ht_walk_rows(&job->rows, part);
    int64_t left = HT_PACE;
    (void)thread;
    ht_index_walk_seek(&walk, last - 1, rows.row);
    do {
        const int64_t end = ht_walk_end(&rows), i = rows.row * job->rows.n;
        for (int64_t k = ht_walk_begin(&rows), run; k < end; k += run) { /* lanes advance unless this axis is the indexed one */
            run = ht_min64(SOME, end - k);
            if (ht_paced_stop(&left, run))
                return;
            const int inside =
                indices->dtype == HT_INT64
                    ? places_int64_t((const int64_t *)indices->data + i + k, run, data->dims[axis], places)
                    : places_int32_t((const int32_t *)indices->data + i + k, run, data->dims[axis], places);
            if (!inside) {
                job->status = HT_ERR_INDEX;
                return;
            }
            take((const char *)data->data + (walk.base + (axis != last ? k : 0)) * bytes, places,
                 (char *)job->call->out[0]->data + (i + k) * bytes, run, axis != last, walk.axis_step);
        }
        ht_index_walk_next(&walk, last - 1);
    } while (ht_walk_next(&rows));
}

int HT_KERNEL(gather_elements)(const ht_call *call)
{
    const int status = check(call);
    if (status != HT_OK)
        return status;
    const ht_tensor *data = call->in[0], *indices = call->in[1];
    taking job = {.call = call};
    if (!ht_index_walk_begin(&job.walk, data, indices, call->ints[0]) || !ht_same_dims(indices, call->out[0]))
        return HT_ERR_OPERAND;
    if (indices->size == 0)
        return HT_OK;
    const int64_t row = indices->dims[data->ndim - 1];
    job.rows = ht_divide_rows(call, indices->size / row, row, 4 * (double)indices->size);
    ht_parallel(call->team, job.rows.parts, take_part, &job);
    return job.status == HT_OK ? HT_OK : ht_index_failure(indices, data, (int)call->ints[0], 1);
}

/* gather_nd: a copy for each tuple of indices. */
typedef struct {
    const ht_call *call;
    int first, depth;      /* axes of data that a tuple names */
    int64_t tuples, rows;  /* tuples: of a batch; rows: of all */
    int64_t bytes, batch_bytes, parts;
    _Atomic int status;
} gathering_nd;

static void gather_nd_part(void *context, int64_t part, int thread)
{
    gathering_nd *job = (gathering_nd *)context;
    const ht_tensor *data = job->call->in[0], *indices = job->call->in[1];
    const int64_t bytes = job->bytes, end = ht_part_begin(job->rows, job->parts, part + 1);
    int64_t left = HT_PACE;
    (void)thread;
    for (int64_t row = ht_part_begin(job->rows, job->parts, part); row < end; row++) {
        int64_t at = 0;
        for (int d = 0; d < job->depth; d++) {
            const int64_t size = data->dims[job->first + d], index = ht_index_at(indices, row * job->depth + d, size);
            if (index < 0) {
                job->status = HT_ERR_INDEX;
                return;
            }
            at = at * size + index;
        }
        if ((bytes > HT_PACE / 256 || (row & 255) == 255) && ht_paced_stop(&left, 256 * bytes))
            return;
        move((char *)job->call->out[0]->data + row * bytes,
             (const char *)data->data + row / job->tuples * job->batch_bytes + at * bytes, bytes);
    }
}

int HT_KERNEL(gather_nd)(const ht_call *call)
{
    const int status = check(call);
    if (status != HT_OK)
        return status;
    const ht_tensor *data = call->in[0], *indices = call->in[1];
    const int64_t batch_dims = call->ints[0];
    if (indices->ndim < 1 || batch_dims < 0 || batch_dims >= indices->ndim || batch_dims >= data->ndim)
        return HT_ERR_OPERAND;
    const int64_t depth = indices->dims[indices->ndim - 1];
    if (depth < 0 || depth > data->ndim - batch_dims)
        return HT_ERR_OPERAND;
    for (int d = 0; d < batch_dims; d++)
        if (data->dims[d] != indices->dims[d])
            return HT_ERR_OPERAND;
    const int first = (int)batch_dims, last = (int)(batch_dims + depth);
    const int64_t tuples = ht_product(indices->dims, first, indices->ndim - 1);
    const int64_t rows = ht_product(data->dims, 0, first) * tuples, inner = ht_product(data->dims, last, data->ndim);
    const int64_t batch = ht_product(data->dims, first, data->ndim), bytes = ht_element_bytes(data->dtype);
    if (call->out[0]->size != rows * inner)
        return HT_ERR_OPERAND;
    gathering_nd job = {.call = call, .first = first, .depth = (int)depth, .tuples = tuples, .rows = rows,
                        .bytes = inner * bytes, .batch_bytes = batch * bytes};
    job.parts = ht_min64(rows, ht_wanted(call, (double)rows * (8 * (double)depth + (double)job.bytes)));
    ht_parallel(call->team, job.parts, gather_nd_part, &job);
    return job.status == HT_OK ? HT_OK : ht_index_failure(indices, data, first, depth);
}
