/* Integer matrix multiplication: pack_quads, matmul_integer. Exact: sums are 32 bits and wrap.
 *
 * integer_micro.h describes the products and the correction by zero points, integer_micro.c the tiles. A's rows are
 * copied as quads, some at a time, with their sums. Cost: m * n * k / 4 lanes of products, plus m * k bytes copied and,
 * unless B is constant, k * n more.
 *
 * pack_quads: in B[batch][k][n] int8 or uint8; its zero point, of the same type: one element, or batch * n. out uint8
 *   of batch * ceil(n / 16) * 64 * (ceil(k / 4) + 2) elements: panels of 16 columns, each with the quads of every
 *   column as signed bytes, then the columns' sums and zero points, both of the stored bytes, int32. ints: batch, k, n.
 * matmul_integer: y = A x B. in: A[m][k] int8 or uint8; its zero point, of the same type: one element, or one per row
 *   of A (in all); B packed; then, if y is int8 or uint8: scale float32, one or n, and y's zero point, one; then
 *   optionally bias[n], int32. out y[batch][m][n] int32, or the result of requantize (see requantize.h).
 *   ints: m, n, k, then the batch: d, dims[d], strides of A[d], strides of B[d] (in packed elements; 0 broadcasts).
 *   scratch: 8 * ceil(k / 4) + 136 bytes for each of at least 12 rows; more than 96 rows bring no gain.
 */
#include "batch.h"
#include "blocks.h"
#include "elements.h"
#include "integer_micro.h"
#include "requantize.h"

enum {
    MOST_ROWS = HT_MATMUL_INTEGER_MOST_ROWS,
    BLOCK_QUADS = 256 /* a block of k: a pair of panels takes 32 kB and stays in L1 while A streams past */
};

HT_INLINE int64_t panel_bytes(int64_t k) { return (ht_quads(k) + 2) * HT_PANEL_BYTES; }

/* The mask that converts a byte of the type to signed or back. */
HT_INLINE uint8_t flip_to_signed(int32_t dtype) { return dtype == HT_INT8 ? 0 : 0x80; }
HT_INLINE uint8_t flip_to_unsigned(int32_t dtype) { return dtype == HT_UINT8 ? 0 : 0x80; }

typedef struct {
    const uint8_t *b, *zero;
    int64_t k, n;
    int64_t panels, zero_step, units, parts;
    uint8_t flip;
    uint8_t *packed;
} packing;

/* Panel `number` of all matrices. */
static void pack_panel(const packing *p, int64_t number)
{
    const int64_t matrix = number / p->panels, column = number % p->panels * HT_PANEL;
    const int64_t columns = ht_min64(HT_PANEL, p->n - column);
    const uint8_t *b = p->b + matrix * p->k * p->n + column, *zero = p->zero + (matrix * p->n + column) * p->zero_step;
    uint8_t *to = p->packed + number * panel_bytes(p->k);
    int32_t sums[HT_PANEL] = {0}, zeros[HT_PANEL] = {0};
    for (int64_t k = 0; k < p->k; k += HT_QUAD, to += HT_PANEL_BYTES) {
        uint32_t quads[HT_PANEL] = {0};
        for (int64_t i = 0; i < ht_min64(HT_QUAD, p->k - k); i++) {
            uint8_t row[HT_PANEL] = {0};
            if (HT_LIKELY(columns == HT_PANEL))
                memcpy(row, b + (k + i) * p->n, HT_PANEL);
            else
                memcpy(row, b + (k + i) * p->n, (size_t)columns);
            for (int64_t j = 0; j < HT_PANEL; j++) { /* little-endian, like all variants */
                row[j] ^= p->flip;
                quads[j] |= (uint32_t)row[j] << (8 * i);
                sums[j] = (int32_t)((uint32_t)sums[j] + (uint32_t)(int8_t)row[j]);
            }
        }
        memcpy(to, quads, sizeof quads);
    }
    for (int64_t j = 0; j < columns; j++)
        zeros[j] = (int8_t)(zero[j * p->zero_step] ^ p->flip);
    memcpy(to, sums, sizeof sums);
    memcpy(to + sizeof sums, zeros, sizeof zeros);
}

static void pack_part(void *context, int64_t part, int thread)
{
    (void)thread;
    const packing *p = (const packing *)context;
    const int64_t end = ht_part_begin(p->units, p->parts, part + 1);
    for (int64_t unit = ht_part_begin(p->units, p->parts, part); unit < end; unit++)
        pack_panel(p, unit);
}

int HT_KERNEL(pack_quads)(const ht_call *call)
{
    if (call->num_in != 2 || call->num_ints != 3)
        return HT_ERR_OPERAND;
    const ht_tensor *b = call->in[0], *zero = call->in[1], *packed = call->out[0];
    const int64_t batch = call->ints[0], k = call->ints[1], n = call->ints[2];
    if ((b->dtype != HT_INT8 && b->dtype != HT_UINT8) || zero->dtype != b->dtype || packed->dtype != HT_UINT8)
        return HT_ERR_DTYPE;
    if (batch < 0 || k < 0 || n < 0 || b->size != batch * k * n || (zero->size != 1 && zero->size != batch * n) ||
        packed->size != batch * ht_quad_bytes(k, n))
        return HT_ERR_OPERAND;
    packing p = {.b = b->data, .zero = zero->data, .k = k, .n = n, .panels = ht_ceil_div(n, HT_PANEL),
                 .zero_step = zero->size != 1, .flip = flip_to_signed(b->dtype), .packed = packed->data};
    p.units = batch * p.panels;
    p.parts = ht_parts(call, p.units, (double)packed->size);
    ht_parallel(call->team, p.parts, pack_part, &p);
    return HT_OK;
}

/* The whole call. */
typedef struct {
    const ht_call *call;
    ht_batch batch;
    int64_t m, n, k;
    ht_blocks blocks;
} multiplication;

/* One block; its first column is a multiple of HT_PANEL. */
static void multiply_block(const multiplication *job, const ht_block block, uint8_t *scratch)
{
    const int64_t i = block.matrix, row = block.row, rows = block.rows, end = block.column + block.columns;
    const ht_tensor *const *in = job->call->in, *y = job->call->out[0];
    const int64_t k = job->k, quads = ht_quads(k);
    const int64_t a_at = ht_batch_offset(&job->batch, job->batch.a_strides, i) + row * k;
    const uint8_t *a = (const uint8_t *)in[0]->data + a_at, *a_zeros = in[1]->data;
    const uint8_t *b = (const uint8_t *)in[2]->data + ht_batch_offset(&job->batch, job->batch.b_strides, i);
    const int32_t *bias = job->call->num_in == 6 ? (const int32_t *)in[5]->data : NULL;
    const uint8_t flip = flip_to_unsigned(in[0]->dtype);
    int32_t sums[MOST_ROWS], zeros[MOST_ROWS];
    int32_t *c = (int32_t *)(void *)scratch;
    uint8_t *prepared = scratch + rows * HT_INTEGER_WIDTH * (int64_t)sizeof *c;
    const int64_t a_row = quads * HT_A_QUAD;
    HT_ASSERT(rows <= MOST_ROWS && block.column % HT_PANEL == 0);
    _Static_assert(HT_INTEGER_WIDTH <= 2 * HT_PANEL && HT_A_QUAD <= 8, "what ht_scratch_matmul_integer_row counts");
    for (int64_t r = 0; r < rows; r++) {
        zeros[r] = a_zeros[in[1]->size == 1 || k == 0 ? 0 : a_at / k + r] ^ flip;
        const uint32_t sum = (uint32_t)ht_prepare_quads(a + r * k, k, flip, 0, prepared + r * a_row);
        sums[r] = (int32_t)(sum - (uint32_t)k * (uint32_t)zeros[r]);
    }
    int64_t left = HT_PACE;
    for (int64_t j = block.column; j < end; j += HT_INTEGER_WIDTH) {
        if (ht_paced_stop(&left, rows * k))
            return;
        const int64_t columns = ht_min64(HT_INTEGER_WIDTH, end - j);
        const uint8_t *panel = b + j / HT_PANEL * panel_bytes(k);
        for (int64_t p = 0; p < ht_ceil_div(columns, HT_PANEL); p++) {
            uint32_t of_columns[2][HT_PANEL];
            memcpy(of_columns, panel + p * panel_bytes(k) + quads * HT_PANEL_BYTES, sizeof of_columns);
            uint32_t any = 0;
            for (int64_t v = 0; v < HT_PANEL; v++)
                any |= of_columns[1][v];
            for (int64_t r = 0; r < rows; r++) {
                uint32_t start[HT_PANEL];
                for (int64_t v = 0; v < HT_PANEL; v++)
                    start[v] = 0u - (uint32_t)zeros[r] * of_columns[0][v];
                for (int64_t v = 0; any && v < HT_PANEL; v++)
                    start[v] -= (uint32_t)sums[r] * of_columns[1][v];
                for (int64_t v = 0; bias && v < ht_min64(HT_PANEL, columns - p * HT_PANEL); v++)
                    start[v] += (uint32_t)bias[j + p * HT_PANEL + v];
                memcpy(c + r * HT_INTEGER_WIDTH + p * HT_PANEL, start, sizeof start);
            }
        }
        for (int64_t q = 0; q < quads; q += BLOCK_QUADS) {
            const ht_integer_tile t = {.a = prepared + q * HT_A_QUAD, .a_row = a_row, .b = panel + q * HT_PANEL_BYTES,
                                       .b_panel = panel_bytes(k), .quads = ht_min64(BLOCK_QUADS, quads - q), .c = c};
            ht_integer_rows(ht_product_tiles, &t, rows, columns);
        }
        for (int64_t r = 0; r < rows; r++) {
            const int64_t at = (i * job->m + row + r) * job->n + j;
            const int32_t *from = c + r * HT_INTEGER_WIDTH;
            if (y->dtype == HT_INT32) {
                memcpy((int32_t *)y->data + at, from, (size_t)columns * sizeof *from);
            } else {
                const int64_t step = in[3]->size != 1;
                ht_requantize_row(from, (const float *)in[3]->data + j * step, step, ht_byte_at(in[4], 0),
                                  y->dtype == HT_INT8, (uint8_t *)y->data + at, columns);
            }
        }
    }
}

static void multiply_part(void *context, int64_t part, int thread)
{
    const multiplication *job = (const multiplication *)context;
    const ht_blocks *blocks = &job->blocks;
    const int64_t end = ht_part_begin(blocks->units, blocks->parts, part + 1);
    for (int64_t unit = ht_part_begin(blocks->units, blocks->parts, part); unit < end && !ht_stopping(); unit++)
        multiply_block(job, ht_block_of(blocks, unit), ht_scratch(job->call, thread));
}

int HT_KERNEL(matmul_integer)(const ht_call *call)
{
    if ((call->num_in != 3 && call->num_in != 5 && call->num_in != 6) || call->num_ints < 4)
        return HT_ERR_OPERAND;
    const ht_tensor *a = call->in[0], *zero = call->in[1], *b = call->in[2], *y = call->out[0];
    multiplication job = {.call = call, .m = call->ints[0], .n = call->ints[1], .k = call->ints[2]};
    const int64_t m = job.m, n = job.n, k = job.k, ndim = call->ints[3];
    if (ndim < 0 || ndim > HT_MAX_DIMS || call->num_ints != 4 + 3 * ndim || m < 0 || n < 0 || k < 0)
        return HT_ERR_OPERAND;
    if ((a->dtype != HT_INT8 && a->dtype != HT_UINT8) || zero->dtype != a->dtype || b->dtype != HT_UINT8)
        return HT_ERR_DTYPE;
    if (call->num_in == 3 ? y->dtype != HT_INT32 : (y->dtype != HT_INT8 && y->dtype != HT_UINT8))
        return HT_ERR_DTYPE;
    if (call->num_in > 3) {
        if (call->in[3]->dtype != HT_FLOAT32 || call->in[4]->dtype != y->dtype ||
            (call->num_in == 6 && call->in[5]->dtype != HT_INT32))
            return HT_ERR_DTYPE;
        if (call->num_in == 6 && call->in[5]->size != n)
            return HT_ERR_OPERAND;
        if ((call->in[3]->size != 1 && call->in[3]->size != n) || call->in[4]->size != 1)
            return HT_ERR_OPERAND;
    }
    job.batch = (ht_batch){ndim, call->ints + 4, call->ints + 4 + ndim, call->ints + 4 + 2 * ndim};
    const int64_t batch = ht_batch_size(&job.batch);
    if (y->size != batch * m * n)
        return HT_ERR_OPERAND;
    if (y->size == 0)
        return HT_OK;
    const int64_t most_rows = ht_min64(MOST_ROWS, call->scratch_bytes / (8 * ht_quads(k) + HT_INTEGER_WIDTH * 4 + 8));
    if (!ht_batch_fits(&job.batch, job.batch.a_strides, m * k, a->size) ||
        !ht_batch_fits(&job.batch, job.batch.b_strides, ht_quad_bytes(k, n), b->size) ||
        (zero->size != 1 && zero->size * k != a->size) || most_rows < 1)
        return HT_ERR_OPERAND;
    /* Each part prepares its own rows. */
    job.blocks = ht_divide(call, batch, m, n, HT_INTEGER_ROWS, HT_INTEGER_WIDTH, most_rows, (double)y->size * (double)k / 4,
                           0);
    ht_parallel(call->team, job.blocks.parts, multiply_part, &job);
    return HT_OK;
}
