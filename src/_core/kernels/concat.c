/* out = the inputs one after another along an axis. Operands: in any number (at least 1) of tensors of out's dtype and
 * rank, with equal sizes except along the axis. Parameters: ints = axis. Any dtype.
 */
#include "elements.h"
#include "vec.h"

#include <string.h>

enum {
    PIECE = 4096,  /* bytes of the result that a thread copies at least */
    BLOCK = 16384, /* bytes of short rows that are copied operand by operand, within the L1 cache */
};

typedef struct {
    const ht_call *call;
    int64_t inner_bytes, row, bytes, parts; /* row: bytes of the result for one outer index; bytes: all of them */
} concatenation;

/* Copies `count` whole rows of the result, operand by operand. */
static void copy_rows(const concatenation *job, int64_t outer, int64_t count)
{
    const ht_call *call = job->call;
    char *to = (char *)call->out[0]->data + outer * job->row;
    for (int k = 0; k < call->num_in; k++) {
        const int64_t row = call->in[k]->dims[call->ints[0]] * job->inner_bytes;
        const char *from = (const char *)call->in[k]->data + outer * row;
        if (row == 4)
            for (int64_t i = 0; i < count; i++)
                memcpy(to + i * job->row, from + 4 * i, 4);
        else if (row == 8)
            for (int64_t i = 0; i < count; i++)
                memcpy(to + i * job->row, from + 8 * i, 8);
        else
            for (int64_t i = 0; i < count; i++)
                ht_long_copy(to + i * job->row, from + row * i, row);
        to += row;
    }
}

/* Copies a range of the result's bytes. */
static void concat_part(void *context, int64_t part, int thread)
{
    const concatenation *job = (const concatenation *)context;
    const ht_call *call = job->call;
    const int64_t axis = call->ints[0], pieces = ht_ceil_div(job->bytes, PIECE);
    const int64_t begin = ht_part_begin(pieces, job->parts, part) * PIECE;
    const int64_t end = ht_min64(job->bytes, ht_part_begin(pieces, job->parts, part + 1) * PIECE);
    char *to = (char *)call->out[0]->data;
    int64_t left = HT_PACE;
    (void)thread;
    for (int64_t outer = begin / job->row, rows; outer * job->row < end; outer += rows) {
        int64_t at = outer * job->row;
        rows = ht_min64(end - at, BLOCK) / job->row;
        if (at >= begin && rows > 1) {
            if (ht_paced_stop(&left, rows * job->row))
                return;
            copy_rows(job, outer, rows);
            continue;
        }
        rows = 1;
        for (int k = 0; k < call->num_in; k++) {
            const int64_t row = call->in[k]->dims[axis] * job->inner_bytes;
            const int64_t first = ht_max64(begin, at), last = ht_min64(end, at + row);
            if (first < last) {
                if (ht_paced_stop(&left, last - first))
                    return;
                ht_long_copy(to + first, (const char *)call->in[k]->data + outer * row + first - at, last - first);
            }
            at += row;
        }
    }
}

int HT_KERNEL(concat)(const ht_call *call)
{
    if (call->num_in < 1 || call->num_out != 1 || call->num_ints != 1)
        return HT_ERR_OPERAND;
    ht_tensor *out = call->out[0];
    const int64_t axis = call->ints[0], bytes = ht_element_bytes(out->dtype);
    if (bytes == 0)
        return HT_ERR_DTYPE;
    if (axis < 0 || axis >= out->ndim)
        return HT_ERR_OPERAND;
    int64_t length = 0;
    for (int k = 0; k < call->num_in; k++) {
        const ht_tensor *x = call->in[k];
        if (x->ndim != out->ndim || x->dtype != out->dtype)
            return HT_ERR_OPERAND;
        for (int d = 0; d < out->ndim; d++)
            if (d != axis && x->dims[d] != out->dims[d])
                return HT_ERR_OPERAND;
        length += x->dims[axis];
    }
    if (length != out->dims[axis])
        return HT_ERR_OPERAND;
    const int64_t inner_bytes = ht_product(out->dims, (int)axis + 1, out->ndim) * bytes;
    concatenation job = {call, inner_bytes, length * inner_bytes, out->size * bytes, 1};
    if (job.bytes == 0)
        return HT_OK;
    job.parts = ht_min64(ht_ceil_div(job.bytes, PIECE), ht_wanted(call, (double)job.bytes));
    ht_parallel(call->team, job.parts, concat_part, &job);
    return HT_OK;
}
