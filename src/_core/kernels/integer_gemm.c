/* Integer matrix multiplication: pack_quads, matmul_integer. Exact: sums are 32 bits and wrap.
 *
 * integer_micro.h describes the products and the correction by zero points, integer_micro.c and integer_tiles.h the tiles.
 * A's rows are copied as quads, some at a time, with their sums. Cost: m * n * k / 4 lanes of products, plus m * k bytes copied and,
 * unless B is constant, k * n more.
 *
 * pack_quads: in B[batch][k][n] int8 or uint8; its zero point, of the same type: one element, or batch * n. out uint8
 *   of batch * ceil(n / 16) * 64 * (ceil(k / 4) + 2) elements: panels of 16 columns, each with the quads of every
 *   column as signed bytes, then the columns' sums, int32, and zero words (see integer_micro.h), both of the stored bytes.
 *   ints: batch, k, n.
 * matmul_integer: y = A x B. in: A[m][k] int8 or uint8; its zero point, of the same type: one element, or one per row
 *   of A (in all); B packed; then, if y is int8 or uint8: scale float32, one or n, and y's zero point, one; then
 *   optionally bias[n], int32, or float32 in units of y. out y[batch][m][n] int32, or the result of requantize (see
 *   requantize.h).
 *   ints: m, n, k, then the batch: d, dims[d], strides of A[d], strides of B[d] (in packed elements; 0 broadcasts).
 *   scratch: 8 * ceil(k / 4) + 136 bytes for each of at least 12 rows; more than 132 rows bring no gain.
 */
#include "batch.h"
#include "blocks.h"
#include "elements.h"
#include "integer_tiles.h"
#include "integer_vec.h"
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

/* Subtracts the zero points from a panel, its sums and themselves, if all of its differences are bytes. */
static void take_off_zeros(uint8_t *panel, int64_t k, int64_t columns, int32_t *sums, int32_t *zeros)
{
    int32_t any = 0, most = INT8_MIN, least = INT8_MAX;
    for (int64_t j = 0; j < HT_PANEL; j++)
        any |= zeros[j];
    if (!any)
        return;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < columns; j++) {
            const int32_t number = (int8_t)panel[i / HT_QUAD * HT_PANEL_BYTES + HT_QUAD * j + i % HT_QUAD] - zeros[j];
            most = number > most ? number : most;
            least = number < least ? number : least;
        }
    if (most > INT8_MAX || least < INT8_MIN)
        return;
    for (int64_t i = 0; i < k; i++)
        for (int64_t j = 0; j < columns; j++)
            panel[i / HT_QUAD * HT_PANEL_BYTES + HT_QUAD * j + i % HT_QUAD] -= (uint8_t)zeros[j];
    for (int64_t j = 0; j < HT_PANEL; j++) {
        sums[j] = (int32_t)((uint32_t)sums[j] - (uint32_t)k * (uint32_t)zeros[j]);
        zeros[j] = 0;
    }
}

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
    uint8_t *panel = to - ht_quads(p->k) * HT_PANEL_BYTES;
    take_off_zeros(panel, p->k, columns, sums, zeros);
    const int is_small = ht_is_small(panel, to - panel);
    for (int64_t j = 0; j < HT_PANEL; j++)
        zeros[j] = ht_zero_word(zeros[j], is_small);
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
    int is_small; /* B, and there are tiles for it */
    ht_blocks blocks;
} multiplication;

/* What the sums of up to HT_INTEGER_WIDTH columns start with: -zero of A * sum of the column - sum of A's row * zero of the
 * column + bias, where the row's sum is that of its elements minus their zero point. */
typedef struct {
    uint32_t sums[HT_INTEGER_WIDTH], zeros[HT_INTEGER_WIDTH], biases[HT_INTEGER_WIDTH];
    int any_zero; /* of a column */
} column_terms;

/* panel: the first one that has the columns. bias: of the first column, or NULL. */
HT_INLINE void read_terms(column_terms *terms, const uint8_t *panel, int64_t k, int64_t columns, const int32_t *bias)
{
    uint32_t any = 0;
    panel += ht_quads(k) * HT_PANEL_BYTES;
    for (int64_t at = 0; at < columns; at += HT_PANEL, panel += panel_bytes(k)) {
        memcpy(terms->sums + at, panel, HT_PANEL_BYTES);
        int32_t words[HT_PANEL];
        memcpy(words, panel + HT_PANEL_BYTES, HT_PANEL_BYTES);
        for (int64_t v = 0; v < HT_PANEL; v++)
            any |= terms->zeros[at + v] = (uint32_t)ht_zero_point(words[v]);
    }
    terms->any_zero = any != 0;
    memset(terms->biases, 0, sizeof terms->biases);
    if (bias)
        memcpy(terms->biases, bias, (size_t)columns * sizeof *bias);
}

/* The start of a row of `panels` panels. */
HT_INLINE void start_row(const column_terms *terms, uint32_t zero, uint32_t sum, int64_t panels, int32_t *to)
{
    for (int64_t v = 0; v < panels * HT_PANEL; v++)
        to[v] = (int32_t)(terms->biases[v] - zero * terms->sums[v]);
    for (int64_t v = 0; terms->any_zero && v < panels * HT_PANEL; v++)
        to[v] = (int32_t)((uint32_t)to[v] - sum * terms->zeros[v]);
}

#if defined(__AVX512F__)
_Static_assert(HT_INTEGER_WIDTH == HT_REQUANTIZE_BLOCK, "a row of sums");

/* Rows of HT_INTEGER_WIDTH sums to bytes, with one scale, or one per column, and likewise the offset. */
HT_INLINE void requantize_block(const int32_t *c, int64_t rows, const float *scale, int scale_step, const float *offset,
                                int64_t offset_step, int32_t zero, int is_signed, uint8_t *y, int64_t y_row)
{
    const __m512 highest = _mm512_set1_ps((float)((is_signed ? INT8_MAX : UINT8_MAX) - zero));
    const __m512 scales[2] = {scale_step ? _mm512_loadu_ps(scale) : _mm512_set1_ps(*scale),
                              scale_step ? _mm512_loadu_ps(scale + HT_PANEL) : _mm512_set1_ps(*scale)};
    const __m512 offsets[2] = {offset_step ? _mm512_loadu_ps(offset) : _mm512_set1_ps(*offset),
                               offset_step ? _mm512_loadu_ps(offset + HT_PANEL) : _mm512_set1_ps(*offset)};
    const __m512i zeros = _mm512_set1_epi16((int16_t)zero);
    for (int64_t r = 0; r < rows; r += 2) {
        const int64_t next = r + 1 < rows ? r + 1 : r;
        const int32_t *from[2] = {c + r * HT_INTEGER_WIDTH, c + next * HT_INTEGER_WIDTH};
        __m512 v[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            v[i] = vf_fma(_mm512_cvtepi32_ps(_mm512_loadu_si512(from[i / 2] + i % 2 * HT_PANEL)), scales[i % 2], offsets[i % 2]);
        const __m512i bytes = ht_requantize_pair(v, highest, zeros, is_signed);
        _mm256_storeu_si256((__m256i *)(void *)(y + r * y_row), _mm512_castsi512_si256(bytes));
        _mm256_storeu_si256((__m256i *)(void *)(y + next * y_row), _mm512_extracti64x4_epi64(bytes, 1));
    }
}
#endif

/* Writes c[rows][HT_INTEGER_WIDTH], of which `columns` columns exist, to y from element `at` on. column: the first one. */
static void finish_rows(const multiplication *job, const int32_t *c, int64_t rows, int64_t at, int64_t column, int64_t columns)
{
    const ht_tensor *const *in = job->call->in, *y = job->call->out[0];
    const int64_t n = job->n;
    if (y->dtype == HT_INT32) {
        int32_t *to = (int32_t *)y->data + at;
        if (columns == HT_INTEGER_WIDTH) /* of a size that the compiler knows: GCC copies others of few bytes slowly */
            for (int64_t r = 0; r < rows; r++)
                memcpy(to + r * n, c + r * HT_INTEGER_WIDTH, HT_INTEGER_WIDTH * sizeof *c);
        else
            for (int64_t r = 0; r < rows; r++)
                for (int64_t v = 0; v < columns; v++)
                    to[r * n + v] = c[r * HT_INTEGER_WIDTH + v];
        return;
    }
    uint8_t *to = (uint8_t *)y->data + at;
    const int step = in[3]->size != 1, is_signed = y->dtype == HT_INT8;
    const float *scale = (const float *)in[3]->data + column * step;
    const int32_t zero = ht_byte_at(in[4], 0);
    int64_t offset_step;
    const float *offset = ht_offset_of(job->call->num_in == 6 ? in[5] : NULL, column, &offset_step);
#if defined(__AVX512F__)
    if (columns == HT_INTEGER_WIDTH) {
        requantize_block(c, rows, scale, step, offset, offset_step, zero, is_signed, to, n);
        return;
    }
#endif
    for (int64_t r = 0; r < rows; r++)
        ht_requantize_row(c + r * HT_INTEGER_WIDTH, scale, step, offset, offset_step, zero, is_signed, to + r * n, columns);
}

#if HT_TILES
/* Copies a row of k bytes, XORed with `flip`, to the tiles of A, `step` bytes apart; the last is padded with zeros. Returns
 * the sum of the bytes. */
static uint32_t prepare_tile_row(const uint8_t *row, int64_t k, uint8_t flip, uint8_t *to, int64_t step)
{
    const __m512i flips = _mm512_set1_epi8((char)flip), ones = _mm512_set1_epi8(1);
    __m512i sums = _mm512_setzero_si512();
    for (; k >= HT_TILE_K; k -= HT_TILE_K, row += HT_TILE_K, to += step) {
        const __m512i bytes = _mm512_xor_si512(_mm512_loadu_si512(row), flips);
        sums = multiply_quads(sums, bytes, ones);
        _mm512_storeu_si512(to, bytes);
    }
    if (k > 0) {
        const __mmask64 rest = ((__mmask64)1 << k) - 1;
        const __m512i bytes = _mm512_maskz_mov_epi8(rest, _mm512_xor_si512(_mm512_maskz_loadu_epi8(rest, row), flips));
        sums = multiply_quads(sums, bytes, ones);
        _mm512_storeu_si512(to, bytes);
    }
    return (uint32_t)_mm512_reduce_add_epi32(sums);
}

/* The sum of a row of whole tiles. */
static uint32_t sum_of_row(const uint8_t *row, int64_t k)
{
    __m512i sums = _mm512_setzero_si512();
    for (int64_t at = 0; at < k; at += HT_TILE_K)
        sums = multiply_quads(sums, _mm512_loadu_si512(row + at), _mm512_set1_epi8(1));
    return (uint32_t)_mm512_reduce_add_epi32(sums);
}

/* multiply_block for at least HT_TILES_LEAST_ROWS rows and k > 0. prepared: room for the rows, in whole tiles. */
static void multiply_tiles(const multiplication *job, const ht_block block, uint8_t *prepared)
{
    const int64_t i = block.matrix, row = block.row, rows = block.rows, end = block.column + block.columns;
    const ht_tensor *const *in = job->call->in, *y = job->call->out[0];
    const int64_t k = job->k, n = job->n, quads = ht_quads(k), tiles = ht_ceil_div(quads, HT_TILE_QUADS);
    const int64_t a_at = ht_batch_offset(&job->batch, job->batch.a_strides, i) + row * k;
    const uint8_t *a = (const uint8_t *)in[0]->data + a_at;
    const uint8_t *b = (const uint8_t *)in[2]->data + ht_batch_offset(&job->batch, job->batch.b_strides, i);
    const uint8_t *b_end = (const uint8_t *)in[2]->data + in[2]->size;
    const int32_t *bias = ht_bias_of(job->call->num_in == 6 ? in[5] : NULL);
    const uint8_t flip = flip_to_unsigned(in[0]->dtype);
    const int one_zero = in[1]->size == 1, to_sums = y->dtype == HT_INT32;
    const uint8_t *a_zeros = (const uint8_t *)in[1]->data + (one_zero ? 0 : a_at / k); /* of the first row */
    /* Where rows are whole tiles of unsigned bytes, tiles read them in place. */
    const int in_place = flip == 0 && k % HT_TILE_K == 0;
    const int64_t a_row = in_place ? k : HT_TILE_K, a_step = in_place ? HT_TILE_K : rows * HT_TILE_K;
    uint32_t sums[MOST_ROWS];
    int32_t c[HT_TILE_PAIR * HT_INTEGER_WIDTH] __attribute__((aligned(64)));
    uint8_t tail[2][HT_TILE_BYTES] __attribute__((aligned(64)));
    int has_sums = !in_place;
    HT_ASSERT(rows <= MOST_ROWS && block.column % HT_PANEL == 0 && k > 0);
    HT_ASSERT(rows * tiles * HT_TILE_K <= job->call->scratch_bytes);
    for (int64_t r = 0; !in_place && r < rows; r++)
        sums[r] = prepare_tile_row(a + r * k, k, flip, prepared + r * a_row, a_step);
    if (!in_place)
        a = prepared;
    int64_t left = HT_PACE;
    ht_integer_tiles_begin(rows);
    for (int64_t j = block.column; j < end; j += HT_INTEGER_WIDTH) {
        if (ht_paced_stop(&left, rows * k))
            break;
        const int64_t columns = ht_min64(HT_INTEGER_WIDTH, end - j), panels = ht_ceil_div(columns, HT_PANEL);
        const uint8_t *panel = b + j / HT_PANEL * panel_bytes(k);
        column_terms terms;
        read_terms(&terms, panel, k, columns, bias ? bias + j : NULL);
        for (int64_t r = 0; terms.any_zero && !has_sums && r < rows; r++)
            sums[r] = sum_of_row(a + r * k, k);
        has_sums |= terms.any_zero;
        ht_tile_product t = {.a_row = a_row, .a_step = a_step, .b_row = HT_PANEL_BYTES, .b_step = HT_TILE_BYTES,
                             .tiles = tiles};
        for (int64_t p = 0; p < panels; p++, panel += panel_bytes(k)) {
            t.b[p] = panel;
            t.last[p] = panel + (tiles - 1) * HT_TILE_BYTES;
            if (b_end - t.last[p] < HT_TILE_BYTES) { /* the tile would extend past the end of B */
                memset(tail[p], 0, HT_TILE_BYTES);
                memcpy(tail[p], t.last[p], (size_t)(panel + quads * HT_PANEL_BYTES - t.last[p]));
                t.last[p] = tail[p];
            }
        }
        /* All rows may start with the same numbers, and whole tiles of sums are written to y itself. */
        const int alike = one_zero && !terms.any_zero, directly = to_sums && columns == panels * HT_PANEL;
        int32_t start[HT_INTEGER_WIDTH] __attribute__((aligned(64)));
        start_row(&terms, a_zeros[0] ^ flip, 0, panels, start); /* if alike */
        for (int64_t r = 0, height; r < rows; r += height) {
            height = ht_next_tile_rows(rows - r);
            for (int64_t s = r; !alike && s < r + height; s++) {
                const uint32_t zero = a_zeros[one_zero ? 0 : s] ^ flip;
                const uint32_t sum = terms.any_zero ? sums[s] - (uint32_t)k * zero : 0;
                start_row(&terms, zero, sum, panels, c + (s - r) * HT_INTEGER_WIDTH);
            }
            const int64_t at = (i * job->m + row + r) * n + j;
            t.a = a + r * a_row;
            t.start = alike ? start : c;
            t.start_row = alike ? 0 : HT_INTEGER_WIDTH * (int64_t)sizeof *c;
            t.c = directly ? (int32_t *)y->data + at : c;
            t.c_row = (directly ? n : HT_INTEGER_WIDTH) * (int64_t)sizeof *c;
            ht_tiles_multiply(&t, height, panels > 1, 0);
            if (!directly)
                finish_rows(job, c, height, at, j, columns);
        }
    }
    ht_tiles_end();
}
#endif

/* One block; its first column is a multiple of HT_PANEL. */
static void multiply_block(const multiplication *job, const ht_block block, uint8_t *scratch)
{
#if HT_TILES
    if (block.rows >= HT_TILES_LEAST_ROWS && job->k > 0) {
        multiply_tiles(job, block, scratch);
        return;
    }
#endif
    const int64_t i = block.matrix, row = block.row, rows = block.rows, end = block.column + block.columns;
    const ht_tensor *const *in = job->call->in;
    const int64_t k = job->k, quads = ht_quads(k);
    const int64_t a_at = ht_batch_offset(&job->batch, job->batch.a_strides, i) + row * k;
    const uint8_t *a = (const uint8_t *)in[0]->data + a_at, *a_zeros = in[1]->data;
    const uint8_t *b = (const uint8_t *)in[2]->data + ht_batch_offset(&job->batch, job->batch.b_strides, i);
    const int32_t *bias = ht_bias_of(job->call->num_in == 6 ? in[5] : NULL);
    const uint8_t flip = flip_to_unsigned(in[0]->dtype);
    const int one_zero = in[1]->size == 1 || k == 0;
    uint32_t sums[MOST_ROWS], zeros[MOST_ROWS];
    int32_t *c = (int32_t *)(void *)scratch;
    uint8_t *prepared = scratch + rows * HT_INTEGER_WIDTH * (int64_t)sizeof *c;
    const int64_t a_quad = job->is_small ? HT_QUAD : HT_A_QUAD, a_row = quads * a_quad;
    HT_ASSERT(rows <= MOST_ROWS && block.column % HT_PANEL == 0);
    _Static_assert(HT_INTEGER_WIDTH <= 2 * HT_PANEL && HT_A_QUAD <= 8, "what ht_scratch_matmul_integer_row counts");
    for (int64_t r = 0; r < rows; r++) {
        zeros[r] = a_zeros[one_zero ? 0 : a_at / k + r] ^ flip;
        const uint32_t sum = (uint32_t)ht_prepare_quads(a + r * k, k, flip, 0, job->is_small, prepared + r * a_row);
        sums[r] = sum - (uint32_t)k * zeros[r];
    }
    int64_t left = HT_PACE;
    for (int64_t j = block.column; j < end; j += HT_INTEGER_WIDTH) {
        if (ht_paced_stop(&left, rows * k))
            return;
        const int64_t columns = ht_min64(HT_INTEGER_WIDTH, end - j), panels = ht_ceil_div(columns, HT_PANEL);
        const uint8_t *panel = b + j / HT_PANEL * panel_bytes(k);
        column_terms terms;
        read_terms(&terms, panel, k, columns, bias ? bias + j : NULL);
        start_row(&terms, zeros[0], sums[0], panels, c);
        if (one_zero && !terms.any_zero)
            for (int64_t r = 1; r < rows; r++)
                memcpy(c + r * HT_INTEGER_WIDTH, c, HT_INTEGER_WIDTH * sizeof *c);
        else
            for (int64_t r = 1; r < rows; r++)
                start_row(&terms, zeros[r], sums[r], panels, c + r * HT_INTEGER_WIDTH);
        for (int64_t q = 0; q < quads; q += BLOCK_QUADS) {
            const ht_integer_tile t = {.a = prepared + q * a_quad, .a_row = a_row, .b = panel + q * HT_PANEL_BYTES,
                                       .b_panel = panel_bytes(k), .quads = ht_min64(BLOCK_QUADS, quads - q), .c = c};
            ht_integer_rows(ht_tiles_for(0, job->is_small), &t, rows, columns);
        }
        finish_rows(job, c, rows, (i * job->m + row) * job->n + j, j, columns);
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
            (call->num_in == 6 && !ht_bias_fits(call->in[5], 1)))
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
    const int64_t panel = panel_bytes(k); /* the words are its last line */
    job.is_small = ht_all_small((const uint8_t *)b->data + panel - HT_PANEL_BYTES, b->size / panel, panel);
    /* Each part prepares its own rows. */
#if HT_TILES
    const double cost = (double)y->size * (1 + (double)k / 16);
    const int64_t tile_rows = HT_TILE_HEIGHT;
#else
    const double cost = (double)y->size * (double)k / 4;
    const int64_t tile_rows = HT_INTEGER_ROWS;
#endif
    job.blocks = ht_divide(call, batch, m, n, tile_rows, HT_INTEGER_WIDTH, most_rows, cost, 0);
    ht_parallel(call->team, job.blocks.parts, multiply_part, &job);
    return HT_OK;
}
