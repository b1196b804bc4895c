/* split_bytes: the halves of 16-bit integers: x + bias = 256 * high + low, where bias is 2^15 for int16 and 0 for
 * uint16. in x int16 or uint16. out high, low: uint8, as many elements as x. */
#include "elements.h"

typedef struct {
    const uint16_t *x;
    uint8_t *high, *low;
    uint16_t bias;
    int64_t n, parts;
} split;

static void split_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const split *j = (const split *)context;
    const uint16_t *restrict x = j->x;
    uint8_t *restrict high = j->high, *restrict low = j->low;
    const int64_t end = ht_part_begin(j->n, j->parts, part + 1);
    for (int64_t i = ht_part_begin(j->n, j->parts, part); i < end; i++) {
        const uint16_t biased = (uint16_t)(x[i] ^ j->bias);
        high[i] = (uint8_t)(biased >> 8);
        low[i] = (uint8_t)biased;
    }
}

int HT_KERNEL(split_bytes)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *high = call->out[0], *low = call->out[1];
    if ((x->dtype != HT_INT16 && x->dtype != HT_UINT16) || high->dtype != HT_UINT8 || low->dtype != HT_UINT8)
        return HT_ERR_DTYPE;
    if (high->size != x->size || low->size != x->size)
        return HT_ERR_OPERAND;
    split j = {.x = x->data, .high = high->data, .low = low->data, .n = x->size};
    j.bias = x->dtype == HT_INT16 ? 0x8000 : 0;
    j.parts = ht_parts(call, j.n, (double)j.n);
    ht_parallel(call->team, j.parts, split_part, &j);
    return HT_OK;
}
