/* gather_nbits: rows of numbers of 4 or 8 bits, selected by index and dequantized, y = (level - zero) * scale.
 *
 * in: data[rows][inner][bytes], int8 or uint8; indices, int32 or int64, of rows; scale[rows][inner][blocks], float32; zero of
 *   data's type, or NULL. Negative indices count from the end; one outside gives HT_ERR_NOTED_INDEX.
 * out: y[indices][inner][width], float32.
 * ints: bits, block, default.
 *   bits 8: width = bytes; zero has scale's shape.
 *   bits 4 (uint8 only): width = 2 * bytes; zero[rows][inner][(blocks + 1) / 2]. The lower half of a byte comes first.
 *   blocks = ceil(width / block). `default` is the zero point of all blocks if zero is NULL.
 */
#include "indices.h"
#include "vec.h"

enum { NBITS_PIECE = 64 }; /* levels at a time, on the stack; even */

typedef struct {
    const ht_call *call;
    int64_t rows, inner, bytes, width, block, blocks, zero_bytes; /* zero_bytes: of an inner row */
    int bits;
    int64_t parts;
    _Atomic int status;
} gathering_nbits;

#define DEQUANTIZE_LEVELS(name, T)                                                                        \
    static void name(const uint8_t *levels, int32_t zero, float scale, float *y, int64_t n)              \
    {                                                                                                     \
        const T *x = (const T *)levels;                                                                   \
        for (int64_t i = 0; i < n; i++)                                                                   \
            y[i] = (float)(x[i] - zero) * scale;                                                          \
    }
DEQUANTIZE_LEVELS(levels_i8, int8_t)
DEQUANTIZE_LEVELS(levels_u8, uint8_t)

/* One inner row. zeros: NULL for the default. */
static void widen_row(const gathering_nbits *job, const uint8_t *data, const float *scales, const uint8_t *zeros, float *y)
{
    const int is_signed = job->call->in[0]->dtype == HT_INT8;
    for (int64_t b = 0; b < job->blocks; b++) {
        int32_t zero = (int32_t)job->call->ints[2];
        if (zeros && job->bits == 4)
            zero = zeros[b / 2] >> b % 2 * 4 & 15;
        else if (zeros)
            zero = is_signed ? (int8_t)zeros[b] : zeros[b];
        const int64_t end = ht_min64((b + 1) * job->block, job->width);
        for (int64_t at = b * job->block, n; at < end; at += n) {
            uint8_t levels[NBITS_PIECE];
            n = end - at;
            if (job->bits == 8)
                (is_signed ? levels_i8 : levels_u8)(data + at, zero, scales[b], y + at, n);
            else {
                n = ht_min64(n, NBITS_PIECE); /* `at` stays even: blocks and pieces are */
                for (int64_t i = 0; i < n / 2; i++) {
                    levels[2 * i] = data[at / 2 + i] & 15;
                    levels[2 * i + 1] = data[at / 2 + i] >> 4;
                }
                levels_u8(levels, zero, scales[b], y + at, n);
            }
        }
    }
}

static void gather_nbits_part(void *context, int64_t part, int thread)
{
    gathering_nbits *job = (gathering_nbits *)context;
    const ht_tensor *indices = job->call->in[1], *zero = job->call->in[3];
    const int64_t count = indices->size * job->inner, end = ht_part_begin(count, job->parts, part + 1);
    int64_t left = HT_PACE;
    (void)thread;
    for (int64_t i = ht_part_begin(count, job->parts, part); i < end; i++) {
        const int64_t index = ht_index_at(indices, i / job->inner, job->rows);
        if (index < 0) {
            job->status = HT_ERR_INDEX;
            return;
        }
        if (ht_paced_stop(&left, job->width))
            return;
        const int64_t row = index * job->inner + i % job->inner;
        widen_row(job, (const uint8_t *)job->call->in[0]->data + row * job->bytes,
                  (const float *)job->call->in[2]->data + row * job->blocks,
                  zero ? (const uint8_t *)zero->data + row * job->zero_bytes : NULL,
                  (float *)job->call->out[0]->data + i * job->width);
    }
}

int HT_KERNEL(gather_nbits)(const ht_call *call)
{
    if (call->num_in != 4 || call->num_out != 1 || call->num_ints != 3)
        return HT_ERR_OPERAND;
    const ht_tensor *data = call->in[0], *indices = call->in[1], *scale = call->in[2], *zero = call->in[3], *y = call->out[0];
    const int64_t bits = call->ints[0], block = call->ints[1];
    if ((data->dtype != HT_UINT8 && (data->dtype != HT_INT8 || bits != 8)) || scale->dtype != HT_FLOAT32 ||
        (zero && zero->dtype != data->dtype) || y->dtype != HT_FLOAT32 || !ht_is_index_type(indices->dtype))
        return HT_ERR_DTYPE;
    if ((bits != 4 && bits != 8) || block < 2 || block % 2 || block > HT_MAX_BYTES || data->ndim < 2 ||
        call->ints[2] < INT8_MIN || call->ints[2] > UINT8_MAX)
        return HT_ERR_OPERAND;
    gathering_nbits job = {.call = call, .rows = data->dims[0], .inner = ht_product(data->dims, 1, data->ndim - 1),
                           .bytes = data->dims[data->ndim - 1], .block = block, .bits = (int)bits};
    job.width = job.bytes * 8 / bits;
    job.blocks = (job.width + block - 1) / block;
    job.zero_bytes = bits == 4 ? (job.blocks + 1) / 2 : job.blocks;
    const int64_t rows = job.rows * job.inner;
    if (scale->size != rows * job.blocks || (zero && zero->size != rows * job.zero_bytes) ||
        y->size != indices->size * job.inner * job.width)
        return HT_ERR_OPERAND;
    if (indices->size * job.inner == 0)
        return HT_OK;
    job.parts = ht_parts(call, indices->size * job.inner, 4 * (double)y->size);
    ht_parallel(call->team, job.parts, gather_nbits_part, &job);
    return job.status == HT_OK ? HT_OK : ht_index_failure(indices, data, 0, 1);
}
