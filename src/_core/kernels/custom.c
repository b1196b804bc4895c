/* custom: calls a user-supplied function (hetero/custom_op.h). Operands: in any, NULL for absent ones; out any. ints:
 * addresses of the function, its user data and its attributes, and the number of attributes. scratch: HT_CUSTOM_NOTE
 * bytes for the note below, then a hetero_tensor for each operand.
 *
 * The function is trusted like a plugin: it receives addresses, and its use of them is not checked.
 */
#include "custom.h"

#include <hetero/custom_op.h>

static void describe(hetero_tensor *tensor, const ht_tensor *operand)
{
    if (operand == NULL) {
        memset(tensor, 0, sizeof *tensor);
        return;
    }
    tensor->data = operand->data;
    tensor->dims = operand->dims;
    tensor->size = operand->size;
    tensor->rank = operand->ndim;
    tensor->dtype = operand->dtype;
}

int HT_KERNEL(custom)(const ht_call *call)
{
    const int64_t operands = (int64_t)call->num_in + call->num_out;
    if (call->num_ints != 4 || call->ints[0] == 0 || call->ints[3] < 0 || call->ints[3] > INT32_MAX ||
        call->scratch_bytes < (int64_t)sizeof(ht_custom_note) + operands * (int64_t)sizeof(hetero_tensor))
        return HT_ERR_OPERAND;
    ht_custom_note *note = call->scratch;
    hetero_tensor *tensors = (hetero_tensor *)(note + 1);
    note->message[0] = '\0';
    for (int32_t i = 0; i < call->num_in; i++)
        describe(&tensors[i], call->in[i]);
    for (int32_t i = 0; i < call->num_out; i++)
        describe(&tensors[call->num_in + i], call->out[i]);
    const hetero_call request = {
        .abi = HETERO_CUSTOM_OP_ABI,
        .num_inputs = call->num_in,
        .num_outputs = call->num_out,
        .num_attributes = (int32_t)call->ints[3],
        .inputs = tensors,
        .outputs = tensors + call->num_in,
        .attributes = (const hetero_attribute *)(uintptr_t)call->ints[2],
        .user_data = (void *)(uintptr_t)call->ints[1],
        .message = note->message,
        .message_size = sizeof note->message,
    };
    note->status = ((hetero_custom_op)(uintptr_t)call->ints[0])(&request);
    note->message[sizeof note->message - 1] = '\0';
    return note->status == 0 ? HT_OK : HT_ERR_CUSTOM;
}
