/* Writing by index. Indices are int32 or int64; negative ones count from the end of their axis; one outside its axis
 * gives HT_ERR_INDEX (out is then partly written). Duplicate indices are applied in order.
 *
 *   scatter_elements   in data, indices, updates; ints = axis, reduction
 *   scatter_nd         in data, indices, updates; ints = reduction.  indices[..., k] names the first k axes of data
 *
 * out: data's dims and dtype; may be data's memory (in place). reduction: HT_SCATTER_NONE assigns (any dtype); the
 * others combine (numeric).
 */
#include "indices.h"

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
    if (out->data != data->data && data->size > 0)
        ht_long_copy(out->data, data->data, data->size * bytes);
    return HT_OK;
}

/* Whether `count` indices from `begin` on are all equal, as along a row of a broadcast column in graph networks. */
#define ALL_EQUAL(T)                                            \
    static int all_equal_##T(const T *index, int64_t count)     \
    {                                                           \
        T other = 0;                                            \
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

int HT_KERNEL(scatter_elements)(const ht_call *call)
{
    combine_fn combine;
    if (call->num_in != 3 || call->num_out != 1 || call->num_ints != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *indices = call->in[1], *updates = call->in[2];
    ht_tensor *out = call->out[0];
    const int64_t axis = call->ints[0], bytes = ht_element_bytes(out->dtype);
    ht_index_walk walk;
    if (!ht_index_walk_begin(&walk, out, indices, axis) || !ht_same_dims(indices, updates))
        return HT_ERR_OPERAND;
    const int status = begin(call, call->ints[1], &combine);
    if (status != HT_OK || indices->size == 0)
        return status;
    /* Neighbors along the last axis with equal indices are also neighbors in out, unless that axis is `axis`. */
    const int64_t run = axis == out->ndim - 1 ? 1 : indices->dims[out->ndim - 1];
    const char *update = (const char *)updates->data;
    int64_t left = HT_PACE;
    for (int64_t begin = 0; begin < indices->size; begin += run) {
        if (ht_paced_stop(&left, run))
            return HT_OK;
        const int64_t together = run > 1 && all_equal(indices, begin, run) ? run : 1;
        for (int64_t i = 0; i < run; i += together, update += together * bytes) {
            if (ht_stops_at(i))
                return HT_OK;
            const int64_t index = ht_index_at(indices, begin + i, out->dims[axis]);
            if (index < 0)
                return HT_ERR_INDEX;
            char *to = (char *)out->data + (walk.base + i + index * walk.axis_step) * bytes;
            if (combine)
                combine(to, update, together);
            else
                ht_long_copy(to, update, together * bytes);
        }
        ht_index_walk_next(&walk, run == 1 ? out->ndim - 1 : out->ndim - 2);
    }
    return HT_OK;
}

int HT_KERNEL(scatter_nd)(const ht_call *call)
{
    combine_fn combine;
    if (call->num_in != 3 || call->num_out != 1 || call->num_ints != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *indices = call->in[1], *updates = call->in[2];
    ht_tensor *out = call->out[0];
    if (indices->ndim < 1)
        return HT_ERR_OPERAND;
    const int64_t depth = indices->dims[indices->ndim - 1];
    if (depth < 0 || depth > out->ndim)
        return HT_ERR_OPERAND;
    const int64_t tuples = ht_product(indices->dims, 0, indices->ndim - 1);
    const int64_t inner = ht_product(out->dims, (int)depth, out->ndim), bytes = inner * ht_element_bytes(out->dtype);
    if (updates->size != tuples * inner)
        return HT_ERR_OPERAND;
    const int status = begin(call, call->ints[0], &combine);
    if (status != HT_OK)
        return status;
    const char *update = (const char *)updates->data;
    int64_t left = HT_PACE;
    for (int64_t t = 0; t < tuples; t++, update += bytes) {
        if ((inner > HT_PACE / 256 || (t & 255) == 255) && ht_paced_stop(&left, 256 * inner))
            return HT_OK;
        int64_t at = 0;
        for (int d = 0; d < depth; d++) {
            const int64_t index = ht_index_at(indices, t * depth + d, out->dims[d]);
            if (index < 0)
                return HT_ERR_INDEX;
            at = at * out->dims[d] + index;
        }
        if (inner == 0)
            continue;
        char *to = (char *)out->data + at * bytes;
        if (combine)
            combine(to, update, inner);
        else
            ht_long_copy(to, update, bytes);
    }
    return HT_OK;
}
