/* Reading by index. Indices are int32 or int64; negative ones count from the end of their axis; one outside its axis
 * gives HT_ERR_INDEX. Elements are only moved: any dtype.
 *
 *   gather            in data, indices; ints = axis.  out dims = data[:axis] + indices + data[axis+1:]
 *   gather_elements   in data, indices; ints = axis.  out dims = indices' dims; same rank as data, other axes not longer
 *   gather_nd         in data, indices; ints = batch dims.  indices[..., k] names k axes of data after the batch dims
 */
#include "elements.h"

#include <string.h>

/* The index `i` of `indices` on an axis of `size`; -1 if outside. */
static inline int64_t index_at(const ht_tensor *indices, int64_t i, int64_t size)
{
    int64_t index = ht_integer_at(indices, i);
    if (index < 0)
        index += size;
    return index < 0 || index >= size ? -1 : index;
}

static inline void move(char *out, const char *from, int64_t bytes)
{
    if (bytes == 4)
        memcpy(out, from, 4);
    else if (bytes == 8)
        memcpy(out, from, 8);
    else
        memcpy(out, from, (size_t)bytes);
}

/* Check what the three share; `operands` are data and indices. */
static int check(const ht_call *call)
{
    if (call->num_in != 2 || call->num_out != 1 || call->num_ints != 1 || !ht_is_index_type(call->in[1]->dtype) ||
        call->in[0]->dtype != call->out[0]->dtype)
        return HT_ERR_OPERAND;
    return ht_element_bytes(call->in[0]->dtype) ? HT_OK : HT_ERR_DTYPE;
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
    const int64_t outer = ht_product(data->dims, 0, (int)axis), size = data->dims[axis];
    const int64_t inner = ht_product(data->dims, (int)axis + 1, data->ndim);
    const int64_t bytes = inner * ht_element_bytes(data->dtype);
    if (call->out[0]->size != outer * indices->size * inner)
        return HT_ERR_OPERAND;
    const char *from = (const char *)data->data;
    char *out = (char *)call->out[0]->data;
    for (int64_t o = 0; o < outer; o++, from += size * bytes)
        for (int64_t i = 0; i < indices->size; i++, out += bytes) {
            const int64_t index = index_at(indices, i, size);
            if (index < 0)
                return HT_ERR_INDEX;
            move(out, from + index * bytes, bytes);
        }
    return HT_OK;
}

int HT_KERNEL(gather_elements)(const ht_call *call)
{
    const int status = check(call);
    if (status != HT_OK)
        return status;
    const ht_tensor *data = call->in[0], *indices = call->in[1];
    const int64_t axis = call->ints[0], bytes = ht_element_bytes(data->dtype);
    if (axis < 0 || axis >= data->ndim || indices->ndim != data->ndim || !ht_same_dims(indices, call->out[0]))
        return HT_ERR_OPERAND;
    for (int d = 0; d < data->ndim; d++)
        if (d != axis && indices->dims[d] > data->dims[d])
            return HT_ERR_OPERAND;
    if (indices->size == 0)
        return HT_OK;
    int64_t step[HT_MAX_DIMS], position[HT_MAX_DIMS] = {0}, base = 0; /* base: of the position without the axis */
    step[data->ndim - 1] = 1;
    for (int d = data->ndim - 1; d > 0; d--)
        step[d - 1] = step[d] * data->dims[d];
    char *out = (char *)call->out[0]->data;
    for (int64_t i = 0; i < indices->size; i++, out += bytes) {
        const int64_t index = index_at(indices, i, data->dims[axis]);
        if (index < 0)
            return HT_ERR_INDEX;
        move(out, (const char *)data->data + (base + index * step[axis]) * bytes, bytes);
        for (int d = data->ndim - 1; d >= 0; d--) {
            const int64_t stride = d == axis ? 0 : step[d];
            base += stride;
            if (++position[d] < indices->dims[d])
                break;
            base -= stride * indices->dims[d];
            position[d] = 0;
        }
    }
    return HT_OK;
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
    const int64_t batches = ht_product(data->dims, 0, first);
    const int64_t tuples = ht_product(indices->dims, first, indices->ndim - 1);
    const int64_t inner = ht_product(data->dims, last, data->ndim), bytes = inner * ht_element_bytes(data->dtype);
    const int64_t batch_bytes = ht_product(data->dims, first, data->ndim) * ht_element_bytes(data->dtype);
    if (call->out[0]->size != batches * tuples * inner)
        return HT_ERR_OPERAND;
    char *out = (char *)call->out[0]->data;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t t = 0; t < tuples; t++, out += bytes) {
            int64_t at = 0;
            for (int d = 0; d < depth; d++) {
                const int64_t index = index_at(indices, (b * tuples + t) * depth + d, data->dims[first + d]);
                if (index < 0)
                    return HT_ERR_INDEX;
                at = at * data->dims[first + d] + index;
            }
            if (bytes > 0)
                move(out, (const char *)data->data + b * batch_bytes + at * bytes, bytes);
        }
    return HT_OK;
}
