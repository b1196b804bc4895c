/* Copies rows into a tensor that has room for them; the other rows of out keep what they hold.
 *
 * Operands: in x; out of the same dtype and rank, with equal sizes except along the axis, where out holds at least begin +
 * x's rows. Parameters: ints = axis, begin (the first row to write). Any dtype.
 */
#include "elements.h"

int HT_KERNEL(append)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 1 || call->num_ints != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0];
    ht_tensor *out = call->out[0];
    const int64_t axis = call->ints[0], begin = call->ints[1], bytes = ht_element_bytes(out->dtype);
    if (bytes == 0 || x->dtype != out->dtype)
        return HT_ERR_DTYPE;
    if (x->ndim != out->ndim || axis < 0 || axis >= out->ndim || begin < 0 || begin > out->dims[axis] - x->dims[axis])
        return HT_ERR_OPERAND;
    for (int d = 0; d < out->ndim; d++)
        if (d != axis && x->dims[d] != out->dims[d])
            return HT_ERR_OPERAND;
    const int64_t row = ht_product(out->dims, (int)axis + 1, out->ndim) * bytes, outer = ht_product(out->dims, 0, (int)axis);
    int64_t left = HT_PACE;
    for (int64_t i = 0; i < outer && !ht_paced_stop(&left, x->dims[axis] * row); i++)
        ht_long_copy((char *)out->data + (i * out->dims[axis] + begin) * row, (const char *)x->data + i * x->dims[axis] * row,
                     x->dims[axis] * row);
    return HT_OK;
}
