/* Writing by index. Indices are int32 or int64; negative ones count from the end of their axis; one outside its axis
 * gives HT_ERR_NOTED_INDEX (out is then partly written). Duplicate indices are applied in order.
 *
 *   scatter_elements   in data, indices, updates; ints = axis, reduction
 *   scatter_nd         in data, indices, updates; ints = reduction.  indices[..., k] names the first k axes of data
 *
 * out: data's dims and dtype; may be data's memory (in place). reduction: HT_SCATTER_NONE assigns (any dtype); the
 * others combine (numeric).
 *
 * Threads take different elements of out, so that each element gets its updates in order: of scatter_elements indices that
 * differ along another axis than `axis`, of scatter_nd parts of the rows that a tuple names.
 */
#include "indices.h"
#include "vec.h"

#include <string.h>

typedef void (*combine_fn)(char *out, const char *update, int64_t n);

#define COMBINE(name, T, EXPR)                                          \
    static void name(char *pout, const char *pupdate, int64_t n)        \
    {                                                                   \
        T *out = (T *)pout;                                             \
        const T *update = (const T *)pupdate;                           \
        HT_LONG_FOR (i, n) {                                            \
            const T x = out[i], y = update[i];                          \
            out[i] = (T)(EXPR);                                         \
        }                                                               \
    }
#define COMBINES(D, s, T, U)                                     \
    COMBINE(add_##s, T, (U)x + (U)y)                             \
    COMBINE(mul_##s, T, (U)x * (U)y)                             \
    COMBINE(max_##s, T, (x > y || x != x) ? x : y)               \
    COMBINE(min_##s, T, (x < y || x != x) ? x : y)
HT_NUMERIC_TYPES(COMBINES)

static combine_fn choose(int64_t reduction, int32_t dtype)
{
    switch (dtype) {
#define CASE(D, s, T, U)                                                                    \
    case D:                                                                                 \
        return reduction == HT_SCATTER_ADD ? add_##s : reduction == HT_SCATTER_MUL ? mul_##s                        \
             : reduction == HT_SCATTER_MAX ? max_##s : min_##s;
        HT_NUMERIC_TYPES(CASE)
    default: return NULL;
    }
}

typedef struct {
    char *out;
    const char *data;
    int64_t bytes, parts;
} copying;

static void copy_part(void *context, int64_t part, int thread)
{
    const copying *job = (const copying *)context;
    const int64_t begin = ht_part_begin(job->bytes, job->parts, part), end = ht_part_begin(job->bytes, job->parts, part + 1);
    (void)thread;
    ht_long_copy(job->out + begin, job->data + begin, end - begin);
}

/* Checks the conditions that both share, chooses `combine` (NULL: assign), and copies data into out. */
static int begin(const ht_call *call, int64_t reduction, combine_fn *combine)
{
    const ht_tensor *data = call->in[0];
    ht_tensor *out = call->out[0];
    if (!ht_is_index_type(call->in[1]->dtype) || data->dtype != out->dtype || call->in[2]->dtype != out->dtype ||
        !ht_same_dims(data, out) || reduction < HT_SCATTER_NONE || reduction > HT_SCATTER_MIN)
        return HT_ERR_OPERAND;
    const int64_t bytes = ht_element_bytes(data->dtype);
    *combine = reduction != HT_SCATTER_NONE ? choose(reduction, data->dtype) : NULL;
    if (bytes == 0 || (reduction != HT_SCATTER_NONE && !*combine))
        return HT_ERR_DTYPE;
    if (out->data != data->data && data->size > 0) {
        copying job = {(char *)out->data, (const char *)data->data, data->size * bytes, 1};
        job.parts = ht_parts(call, job.bytes, (double)job.bytes);
        ht_parallel(call->team, job.parts, copy_part, &job);
    }
    return HT_OK;
}

/* Whether `count` indices from `begin` on are all equal, as along a row of a broadcast column in graph networks. */
#define ALL_EQUAL(T)                                            \
    static int all_equal_##T(const T *index, int64_t count)     \
    {                                                           \
        T other = index[0] ^ index[count - 1];                  \
        if (other != 0) /* usual: the others are not read */    \
            return 0;                                           \
        HT_LONG_FOR (i, count)                                  \
            other |= index[i] ^ index[0];                       \
        return other == 0;                                      \
    }
ALL_EQUAL(int32_t)
ALL_EQUAL(int64_t)

static int all_equal(const ht_tensor *indices, int64_t begin, int64_t count)
{
    if (indices->dtype == HT_INT64)
        return all_equal_int64_t((const int64_t *)indices->data + begin, count);
    return all_equal_int32_t((const int32_t *)indices->data + begin, count);
}

/* A row of updates, assigned to or (OPERATOR +=) added to out[i * lane + index * step]; returns 0 if an index is outside
 * [-size, size). */
#define PUT(name, T, I, OPERATOR)                                                                                            \
    static int name(void *pout, const void *pindex, const void *pupdate, int64_t n, int64_t size, int64_t lane,      \
                    int64_t step)                                                                                     \
    {                                                                                                                 \
        T *out = (T *)pout;                                                                                           \
        const I *index = (const I *)pindex;                                                                           \
        const T *update = (const T *)pupdate;                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                                             \
            const int64_t at = index[i] < 0 ? index[i] + size : index[i];                                             \
            if ((uint64_t)at >= (uint64_t)size)                                                                       \
                return 0;                                                                                             \
            out[i * lane + at * step] OPERATOR update[i];                                                             \
        }                                                                                                             \
        return 1;                                                                                                     \
    }
#define PUTS(T) PUT(put_##T##_32, T, int32_t, =) PUT(put_##T##_64, T, int64_t, =)
PUTS(uint8_t)
PUTS(uint16_t)
PUTS(uint32_t)
PUTS(uint64_t)
PUT(put_sum_32, float, int32_t, +=)
PUT(put_sum_64, float, int64_t, +=)

typedef int (*put_fn)(void *out, const void *index, const void *update, int64_t n, int64_t size, int64_t lane, int64_t step);

/* Returns NULL if no function fits; the caller then combines element by element. */
static put_fn choose_put(int64_t reduction, int32_t dtype, int32_t index_type)
{
    const int wide = index_type == HT_INT64;
    if (reduction == HT_SCATTER_ADD && dtype == HT_FLOAT32)
        return wide ? put_sum_64 : put_sum_32;
    if (reduction != HT_SCATTER_NONE)
        return NULL;
    switch (ht_element_bytes(dtype)) {
    case 1: return wide ? put_uint8_t_64 : put_uint8_t_32;
    case 2: return wide ? put_uint16_t_64 : put_uint16_t_32;
    case 4: return wide ? put_uint32_t_64 : put_uint32_t_32;
    default: return wide ? put_uint64_t_64 : put_uint64_t_32;
    }
}

enum { LANES = 16 }; /* elements of a row that a thread takes at least */

/* scatter_elements: parts of the dims before `axis` times parts of the last dim, if that is another one. */
typedef struct {
    const ht_call *call;
    combine_fn combine; /* or NULL */
    put_fn put;         /* or NULL */
    ht_index_walk walk; /* at the first element */
    int64_t outer, slices, lane_parts, parts; /* slices: indices of one outer element */
    _Atomic int status;
} scattering;

static void scatter_part(void *context, int64_t part, int thread)
{
    scattering *job = (scattering *)context;
    const ht_tensor *indices = job->call->in[1], *out = job->call->out[0];
    const int64_t axis = job->call->ints[0], bytes = ht_element_bytes(out->dtype), outer_parts = job->parts / job->lane_parts;
    const int64_t index_bytes = ht_element_bytes(indices->dtype), size = out->dims[axis];
    const int last = out->ndim - 1, lane = axis != last; /* do neighbors along the last axis have other places? */
    const int64_t row = indices->dims[last];
    const int64_t first = ht_part_begin(row, job->lane_parts, part % job->lane_parts);
    const int64_t run = ht_part_begin(row, job->lane_parts, part % job->lane_parts + 1) - first;
    const int64_t begin = ht_part_begin(job->outer, outer_parts, part / job->lane_parts) * job->slices;
    const int64_t end = ht_part_begin(job->outer, outer_parts, part / job->lane_parts + 1) * job->slices;
    ht_index_walk walk = job->walk;
    int64_t left = HT_PACE;
    (void)thread;
    if (begin == end || run == 0)
        return;
    ht_index_walk_seek(&walk, last - 1, begin / row);
    for (int64_t at = begin; at < end; at += row) {
        for (int64_t i = first, some; i < first + run; i += some) {
            some = ht_min64(HT_PIECE, first + run - i);
            if (ht_paced_stop(&left, some))
                return;
            char *to = (char *)out->data + (walk.base + (lane ? i : 0)) * bytes;
            const char *update = (const char *)job->call->in[2]->data + (at + i) * bytes;
            int fits = 1;
            if (lane && some > 1 && all_equal(indices, at + i, some)) { /* these are neighbors in out, too */
                const int64_t index = ht_index_at(indices, at + i, size);
                fits = index >= 0;
                if (fits && job->combine)
                    job->combine(to + index * walk.axis_step * bytes, update, some);
                else if (fits)
                    ht_long_copy(to + index * walk.axis_step * bytes, update, some * bytes);
            } else if (job->put)
                fits = job->put(to, (const char *)indices->data + (at + i) * index_bytes, update, some, size, lane,
                                walk.axis_step);
            else
                for (int64_t k = 0; k < some && fits; k++) {
                    const int64_t index = ht_index_at(indices, at + i + k, size);
                    fits = index >= 0;
                    if (fits)
                        job->combine(to + (k * lane + index * walk.axis_step) * bytes, update + k * bytes, 1);
                }
            if (!fits) {
                job->status = HT_ERR_INDEX;
                return;
            }
        }
        ht_index_walk_next(&walk, last - 1);
    }
}

int HT_KERNEL(scatter_elements)(const ht_call *call)
{
    if (call->num_in != 3 || call->num_out != 1 || call->num_ints != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *indices = call->in[1], *updates = call->in[2];
    ht_tensor *out = call->out[0];
    const int64_t axis = call->ints[0];
    scattering job = {.call = call, .lane_parts = 1};
    if (!ht_index_walk_begin(&job.walk, out, indices, axis) || !ht_same_dims(indices, updates))
        return HT_ERR_OPERAND;
    const int status = begin(call, call->ints[1], &job.combine);
    if (status != HT_OK || indices->size == 0)
        return status;
    job.put = choose_put(call->ints[1], out->dtype, indices->dtype);
    job.outer = ht_product(indices->dims, 0, (int)axis);
    job.slices = indices->size / job.outer;
    const int64_t wanted = ht_wanted(call, 4 * (double)indices->size), lanes = indices->dims[out->ndim - 1] / LANES;
    const int64_t outer_parts = job.outer < wanted ? job.outer : wanted;
    if (axis < out->ndim - 1 && outer_parts < wanted && lanes > 1)
        job.lane_parts = lanes < wanted / outer_parts ? lanes : wanted / outer_parts;
    job.parts = outer_parts * job.lane_parts;
    ht_parallel(call->team, job.parts, scatter_part, &job);
    return job.status == HT_OK ? HT_OK : ht_index_failure(indices, out, (int)axis, 1);
}

/* scatter_nd: parts of the elements that a tuple names. */
typedef struct {
    const ht_call *call;
    combine_fn combine;
    int64_t depth, tuples, inner, parts;
    _Atomic int status;
} scattering_nd;

static void scatter_nd_part(void *context, int64_t part, int thread)
{
    scattering_nd *job = (scattering_nd *)context;
    const ht_tensor *indices = job->call->in[1], *out = job->call->out[0];
    const int64_t bytes = ht_element_bytes(out->dtype), first = ht_part_begin(job->inner, job->parts, part);
    const int64_t count = ht_part_begin(job->inner, job->parts, part + 1) - first;
    int64_t left = HT_PACE;
    (void)thread;
    for (int64_t t = 0; t < job->tuples; t++) {
        if ((count > HT_PACE / 256 || (t & 255) == 255) && ht_paced_stop(&left, 256 * count))
            return;
        int64_t at = 0;
        for (int d = 0; d < job->depth; d++) {
            const int64_t index = ht_index_at(indices, t * job->depth + d, out->dims[d]);
            if (index < 0) {
                job->status = HT_ERR_INDEX;
                return;
            }
            at = at * out->dims[d] + index;
        }
        if (count == 0)
            continue;
        char *to = (char *)out->data + (at * job->inner + first) * bytes;
        const char *update = (const char *)job->call->in[2]->data + (t * job->inner + first) * bytes;
        if (job->combine)
            job->combine(to, update, count);
        else
            ht_long_copy(to, update, count * bytes);
    }
}

int HT_KERNEL(scatter_nd)(const ht_call *call)
{
    if (call->num_in != 3 || call->num_out != 1 || call->num_ints != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *indices = call->in[1], *updates = call->in[2];
    ht_tensor *out = call->out[0];
    if (indices->ndim < 1)
        return HT_ERR_OPERAND;
    scattering_nd job = {.call = call, .depth = indices->dims[indices->ndim - 1]};
    if (job.depth < 0 || job.depth > out->ndim)
        return HT_ERR_OPERAND;
    job.tuples = ht_product(indices->dims, 0, indices->ndim - 1);
    job.inner = ht_product(out->dims, (int)job.depth, out->ndim);
    if (updates->size != job.tuples * job.inner)
        return HT_ERR_OPERAND;
    const int status = begin(call, call->ints[0], &job.combine);
    if (status != HT_OK)
        return status;
    const int64_t wanted = ht_wanted(call, (double)updates->size), lanes = job.inner / LANES;
    job.parts = lanes < wanted ? (lanes > 1 ? lanes : 1) : wanted;
    ht_parallel(call->team, job.parts, scatter_nd_part, &job);
    return job.status == HT_OK ? HT_OK : ht_index_failure(indices, out, 0, job.depth);
}
