/* lookup: y[i] = table[x[i]], any function of 8-bit integers. in x int8 or uint8; table: 256 elements of y's type, the
 * first for the smallest x. out y: int8 or uint8, as many elements as x. Works in place. */
#include "elements.h"

typedef struct {
    const uint8_t *x, *table; /* table: indexed by x's bits */
    uint8_t *y;
    int64_t n, parts;
} job;

static void look_up_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const job *j = (const job *)context;
    const uint8_t *x = j->x, *table = j->table;
    uint8_t *y = j->y;
    const int64_t end = ht_part_begin(j->n, j->parts, part + 1);
    int64_t i = ht_part_begin(j->n, j->parts, part);
    for (; i + 8 <= end; i += 8) { /* eight bytes by one load and one store; little-endian, like all variants */
        uint64_t from, to = 0;
        memcpy(&from, x + i, 8);
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++)
            to |= (uint64_t)table[from >> (8 * k) & 0xff] << (8 * k);
        memcpy(y + i, &to, 8);
    }
    for (; i < end; i++)
        y[i] = table[x[i]];
}

int HT_KERNEL(lookup)(const ht_call *call)
{
    if (call->num_in != 2 || call->num_out != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *table = call->in[1], *y = call->out[0];
    if ((x->dtype != HT_INT8 && x->dtype != HT_UINT8) || (y->dtype != HT_INT8 && y->dtype != HT_UINT8) ||
        table->dtype != y->dtype)
        return HT_ERR_DTYPE;
    if (table->size != 256 || y->size != x->size)
        return HT_ERR_OPERAND;
    uint8_t by_bits[256]; /* -128 comes first, but its bits are 128 */
    for (int i = 0; i < 256; i++)
        by_bits[i ^ (x->dtype == HT_INT8 ? 0x80 : 0)] = ((const uint8_t *)table->data)[i];
    job j = {.x = x->data, .table = by_bits, .y = y->data, .n = x->size};
    j.parts = ht_parts(call, j.n, (double)j.n);
    ht_parallel(call->team, j.parts, look_up_part, &j);
    return HT_OK;
}
