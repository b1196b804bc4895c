/* Products with weights of 4 or 8 bits, which are widened in registers: pack_nbits, matmul_nbits. nbits.h has the layout.
 *
 * pack_nbits: in B uint8[n][blocks][block * bits / 8], with the lowest bits of a byte first; scales float32[n][blocks];
 *   zero points uint8[n][ceil(blocks * bits / 8)], packed as B, or NULL. out uint8 of ht_nbits_bytes elements.
 *   ints: 0, n, k, bits, block, has_zeros. blocks = ceil(k / block).
 * matmul_nbits: y = x times (B - zero point) * scale + bias.
 *   in x float32[m][k]; packed B; bias float32[n] or NULL. out y float32[m][n].
 *   ints: m, n, k, bits, block (a multiple of 8 up to HT_NBITS_MAX_BLOCK), has_zeros.
 *
 * For fewer than UNPACKED_ROWS rows, a tile loads a word of each column of a vector. It converts each element of the words to
 * float, subtracts the zero point, and multiplies by an element of each row of x. It multiplies a block's sum by the scale.
 * With more rows, a part of a panel that fits the L1 cache is dequantized first; the tiles of float32 products multiply it.
 * Cost: reading B for one row; for many, the multiplications. */
#include "gemm_micro.h"
#include "nbits.h"

enum {
    UNPACKED_ROWS = 8,       /* from which dequantizing a panel first is faster */
    UNPACKED_K = 256,        /* elements along k that are dequantized at a time: 16 kB of a panel. A multiple of 8 */
    UNPACKED_PANELS = 4,     /* panels that use a block of x while it is in the L2 cache; at least a tile's */
    ROWS = 4,       /* of a tile: they share widened weights, and their sums fit the registers */
    CHAINS = VF_LANES == 16 ? 4 : 2, /* sums of a row and a vector over every CHAINS-th element hide the latency */
    ROW_BLOCK = 64, /* rows that use a panel while it is in the cache */
    PAIR = 2        /* vectors of columns at a time for one row */
};

/* ---- packing */

HT_INLINE uint32_t element_of(const uint8_t *from, int64_t i, const int bits)
{
    return bits == 8 ? from[i] : (uint32_t)(from[i / 2] >> (i % 2 * 4)) & 15u;
}

int HT_KERNEL(pack_nbits)(const ht_call *call)
{
    ht_nbits l;
    if (!ht_nbits_of(&l, call) || call->num_in < 2 || (call->num_in > 2 && call->in[2] != NULL) != l.has_zeros)
        return HT_ERR_OPERAND;
    const ht_tensor *b = call->in[0], *scales = call->in[1], *zeros = l.has_zeros ? call->in[2] : NULL, *y = call->out[0];
    if (b->dtype != HT_UINT8 || scales->dtype != HT_FLOAT32 || (zeros && zeros->dtype != HT_UINT8) || y->dtype != HT_UINT8)
        return HT_ERR_DTYPE;
    const int64_t column_bytes = ht_size_product(l.blocks, l.block * l.bits / 8);
    const int64_t zero_bytes = ht_size_quotient(ht_size_product(l.blocks, l.bits), 8);
    if (b->size != ht_size_product(l.n, column_bytes) || scales->size != ht_size_product(l.n, l.blocks) ||
        (zeros && zeros->size != ht_size_product(l.n, zero_bytes)) ||
        y->size != ht_nbits_bytes(l.k, l.n, l.bits, l.block, l.has_zeros))
        return HT_ERR_OPERAND;
    uint8_t *to = y->data;
    int64_t left = HT_PACE;
    for (int64_t column = 0; column < l.n; column += HT_PANEL)
        for (int64_t i = 0; i < l.blocks; i++, to += l.block_bytes) {
            if (ht_paced_stop(&left, l.block * HT_PANEL))
                return HT_OK;
            memset(to, 0, (size_t)l.block_bytes);
            uint8_t *words = to + (ht_nbits_words(&l, to) - to);
            for (int64_t c = 0; c < ht_min64(HT_PANEL, l.n - column); c++) {
                const uint8_t *from = (const uint8_t *)b->data + (column + c) * column_bytes + i * l.block * l.bits / 8;
                memcpy(to + 4 * c, (const float *)scales->data + (column + c) * l.blocks + i, 4);
                if (zeros)
                    to[4 * HT_PANEL + c] =
                        (uint8_t)element_of((const uint8_t *)zeros->data + (column + c) * zero_bytes, i, l.bits);
                for (int64_t w = 0; w < l.words; w++) {
                    uint8_t *word = words + (w * HT_PANEL + c) * 4;
                    for (int j = 0; j < 4; j++)
                        word[j] = (uint8_t)(l.bits == 8 ? from[4 * w + j]
                                                        : element_of(from, 8 * w + j, 4) |
                                                              element_of(from, 8 * w + 4 + j, 4) << 4);
                }
            }
        }
    return HT_OK;
}

/* ---- products */

/* What `element` reads instead of the words: with their highest bit of each element flipped, they are signed. */
HT_INLINE vi prepared(vi words, const int bits)
{
#if defined(__AVX512F__)
    if (bits == 4)
        return words;
#endif
    return vi_xor(words, vi_set1(bits == 4 ? (int32_t)0x88888888u : (int32_t)0x80808080u));
}

/* Element s of each prepared word as a float minus half the range. s: as bits lie in a word. */
HT_INLINE vf element(vi words, const int bits, const int s)
{
#if defined(__AVX512F__)
    if (bits == 4) { /* a permutation looks up the lowest 4 bits of each lane and ignores the others */
        const __m512 numbers = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
        return _mm512_permutexvar_ps(_mm512_srli_epi32(words, (unsigned)(4 * s)), numbers);
    }
#endif
    const int up = 32 - bits * (s + 1), down = 32 - bits;
    return vi_to_float(vi_shr(vi_shl(words, up), down));
}

/* The element along k that lies at place s of a word. */
#define ELEMENT_AT(bits, s) ((bits) == 8 ? (s) : (s) / 2 + (s) % 2 * 4)

typedef struct {
    ht_nbits l;
    const float *x, *bias;
    const uint8_t *packed;
    float *y;
    int unpacks;
    int64_t panels, group, row_blocks, parts; /* group: panels of a unit of work */
} product;

/* `rows` rows from `row` on, `vectors` vectors of columns from `column` on, in one panel or at the start of each of
 * several. */
HT_INLINE void tile(const product *p, int64_t row, int64_t column, const int rows, const int vectors, const int bits,
                    const int has_zeros)
{
    const ht_nbits *l = &p->l;
    const int per_word = 32 / bits;
    const float *x = p->x + row * l->k;
    const uint8_t *block[PAIR];
    int64_t lane[PAIR];
    vf total[ROWS][PAIR];
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++) {
        const int64_t at = column + v * VF_LANES;
        lane[v] = at % HT_PANEL;
        block[v] = p->packed + at / HT_PANEL * l->blocks * l->block_bytes;
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
            total[i][v] = vf_set1(0.0f);
    }
    for (int64_t k0 = 0; k0 < l->k; k0 += l->block) {
        vf sum[ROWS][PAIR][CHAINS], zero[PAIR];
        const uint8_t *words[PAIR];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            words[v] = ht_nbits_words(l, block[v]) + 4 * lane[v];
            zero[v] = ht_nbits_zeros(l, block[v], lane[v]) - vf_set1(bits == 4 ? 8.0f : 128.0f);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
                for (int c = 0; c < CHAINS; c++)
                    sum[i][v][c] = vf_set1(0.0f);
        }
        const int64_t end = ht_min64(l->k, k0 + l->block);
        int64_t k = k0;
        for (; k + per_word <= end; k += per_word) {
            vi word[PAIR];
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) {
                word[v] = prepared(ht_nbits_load(words[v]), bits);
                ht_nbits_prefetch(words[v]);
                words[v] += 4 * HT_PANEL;
            }
#pragma GCC unroll 8
            for (int s = 0; s < per_word; s++)
#pragma GCC unroll 2
                for (int v = 0; v < vectors; v++) {
                    vf w = element(word[v], bits, s);
                    if (has_zeros)
                        w -= zero[v];
#pragma GCC unroll 4
                    for (int i = 0; i < rows; i++)
                        sum[i][v][s % CHAINS] =
                            vf_fma(vf_set1(x[i * l->k + k + ELEMENT_AT(bits, s)]), w, sum[i][v][s % CHAINS]);
                }
        }
        if (k < end) /* the last word of a column, of which x has only some elements */
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) {
                const vi word = prepared(ht_nbits_load(words[v]), bits);
#pragma GCC unroll 8
                for (int s = 0; s < per_word; s++) {
                    vf w = element(word, bits, s);
                    if (has_zeros)
                        w -= zero[v];
                    if (k + ELEMENT_AT(bits, s) < end)
#pragma GCC unroll 4
                        for (int i = 0; i < rows; i++)
                            sum[i][v][s % CHAINS] =
                                vf_fma(vf_set1(x[i * l->k + k + ELEMENT_AT(bits, s)]), w, sum[i][v][s % CHAINS]);
                }
            }
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            const vf scale = vf_load((const float *)(const void *)block[v] + lane[v]);
#pragma GCC unroll 4
            for (int i = 0; i < rows; i++) {
                vf block_sum = sum[i][v][0] + sum[i][v][1];
                if (CHAINS == 4)
                    block_sum += sum[i][v][CHAINS - 2] + sum[i][v][CHAINS - 1];
                total[i][v] = vf_fma(scale, block_sum, total[i][v]);
            }
            block[v] += l->block_bytes;
        }
    }
#pragma GCC unroll 2
    for (int v = 0; v < vectors; v++)
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++)
            ht_nbits_store(l, p->bias, p->y, row + i, column + v * VF_LANES, total[i][v]);
}

/* One panel times `rows` rows. */
HT_INLINE void rows_of_panel(const product *p, int64_t row, int64_t rows, int64_t column, const int bits,
                             const int has_zeros)
{
    const int vectors = HT_PANEL / VF_LANES, pair = vectors < PAIR ? vectors : PAIR;
    int64_t i = 0;
    for (; i + ROWS <= rows; i += ROWS)
        for (int v = 0; v < vectors; v++)
            tile(p, row + i, column + v * VF_LANES, ROWS, 1, bits, has_zeros);
    for (; i < rows; i++)
        for (int v = 0; v < vectors; v += pair)
            tile(p, row + i, column + v * VF_LANES, 1, pair, bits, has_zeros);
}

/* Dequantizes elements [k0, k1) of the columns of a panel to `to`[k1 - k0][HT_PANEL], and up to 7 after them. k0: a multiple
 * of 8. */
HT_INLINE void unpack_panel(const ht_nbits *l, const uint8_t *panel, int64_t k0, int64_t k1, const int bits, float *to)
{
    const int per_word = 32 / bits;
    for (int64_t k = k0; k < k1;) {
        const uint8_t *block = panel + k / l->block * l->block_bytes, *words = ht_nbits_words(l, block);
        const int64_t first = k % l->block / per_word, end = ht_min64(k1, (k / l->block + 1) * l->block);
        for (int64_t lane = 0; lane < HT_PANEL; lane += VF_LANES) {
            const vf scale = vf_load((const float *)(const void *)block + lane);
            const vf zero = ht_nbits_zeros(l, block, lane) - vf_set1(bits == 4 ? 8.0f : 128.0f);
            const uint8_t *at = words + 4 * (first * HT_PANEL + lane);
            float *row = to + (k - k0) * HT_PANEL + lane;
            for (int64_t i = k; i < end; i += per_word, at += 4 * HT_PANEL, row += per_word * HT_PANEL) {
                const vi word = prepared(ht_nbits_load(at), bits);
                ht_nbits_prefetch(at);
#pragma GCC unroll 8
                for (int s = 0; s < per_word; s++)
                    vf_store(row + ELEMENT_AT(bits, s) * HT_PANEL, (element(word, bits, s) - zero) * scale);
            }
        }
        k = end;
    }
}

/* `rows` rows times `panels` panels. */
static void multiply_unpacked(const product *p, int64_t row, int64_t rows, int64_t column, int64_t panels)
{
    enum { PANELS = HT_TILE_PANELS };
    const ht_nbits *l = &p->l;
    float unpacked[PANELS * UNPACKED_K * HT_PANEL] __attribute__((aligned(64)));
    for (int64_t k0 = 0; k0 < l->k && !ht_stopping(); k0 += UNPACKED_K) {
        const int64_t k1 = ht_min64(l->k, k0 + UNPACKED_K);
        for (int64_t first = 0; first < panels; first += PANELS) {
            const int64_t at = column + first * HT_PANEL, count = ht_min64(PANELS, panels - first);
            for (int64_t i = 0; i < count; i++) {
                const uint8_t *panel = p->packed + (at / HT_PANEL + i) * l->blocks * l->block_bytes;
                if (l->bits == 4)
                    unpack_panel(l, panel, k0, k1, 4, unpacked + i * UNPACKED_K * HT_PANEL);
                else
                    unpack_panel(l, panel, k0, k1, 8, unpacked + i * UNPACKED_K * HT_PANEL);
            }
            const ht_epilogue epilogue = {.bias = p->bias ? p->bias + at : NULL, .bias_col = 1, .alpha = 1.0f, .beta = 1.0f,
                                          .low = -INFINITY, .high = INFINITY};
            const ht_tile t = {.a = p->x + row * l->k + k0, .a_row = l->k, .a_k = 1, .b = unpacked, .b_k = HT_PANEL,
                               .b_panel = UNPACKED_K * HT_PANEL, .c = p->y + row * l->n + at, .c_row = l->n, .k = k1 - k0,
                               .accumulate = k0 > 0, .next = unpacked,
                               .epilogue = p->bias && k1 == l->k ? &epilogue : NULL};
            ht_gemm_block(&t, 0, rows, ht_min64(l->n - at, count * HT_PANEL));
        }
    }
}

static void multiply_part(void *context, int64_t part, int thread)
{
    const product *p = context;
    const int64_t groups = ht_ceil_div(p->panels, p->group);
    const int64_t units = groups * p->row_blocks, end = ht_part_begin(units, p->parts, part + 1);
    int64_t left = HT_PACE;
    (void)thread;
    for (int64_t unit = ht_part_begin(units, p->parts, part); unit < end; unit++) {
        const int64_t row = unit / groups * ROW_BLOCK, panel = unit % groups * p->group, column = panel * HT_PANEL;
        const int64_t rows = ht_min64(ROW_BLOCK, p->l.m - row);
        if (ht_paced_stop(&left, rows * p->group * HT_PANEL * p->l.k))
            return;
        if (p->unpacks)
            multiply_unpacked(p, row, rows, column, ht_min64(p->group, p->panels - panel));
        else if (p->l.bits == 4 && p->l.has_zeros)
            rows_of_panel(p, row, rows, column, 4, 1);
        else if (p->l.bits == 4)
            rows_of_panel(p, row, rows, column, 4, 0);
        else if (p->l.has_zeros)
            rows_of_panel(p, row, rows, column, 8, 1);
        else
            rows_of_panel(p, row, rows, column, 8, 0);
    }
}

int HT_KERNEL(matmul_nbits)(const ht_call *call)
{
    product p;
    const int status = ht_nbits_operands(call, &p.l, &p.x, &p.packed, &p.bias, &p.y);
    if (status != HT_OK)
        return status;
    p.panels = ht_ceil_div(p.l.n, HT_PANEL);
    p.unpacks = p.l.m >= UNPACKED_ROWS && p.l.k > 0;
    p.group = p.unpacks ? UNPACKED_PANELS : 1;
    p.row_blocks = ht_ceil_div(p.l.m, ROW_BLOCK);
    p.parts = ht_parts(call, ht_ceil_div(p.panels, p.group) * p.row_blocks, (double)p.l.m * (double)p.l.n * (double)p.l.k);
    if (p.l.m && p.l.n)
        ht_parallel(call->team, p.parts, multiply_part, &p);
    return HT_OK;
}
