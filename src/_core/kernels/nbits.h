/* Weights of 4 or 8 bits in blocks along k, packed by pack_nbits, and products with them (matmul_nbits.c in float32,
 * matmul_nbits_bytes.c with activations of 8 bits).
 *
 * A panel has HT_PANEL columns, the last one of a matrix with columns of zeros. Its blocks follow each other; a block has
 *   the scale of each column, float32;
 *   if the matrix has zero points, the zero point of each column, one byte;
 *   words of 32 bits, one per column, for every 8 (4 bits) or 4 (8 bits) elements along k.
 * Byte j of a word holds element j in its lower bits and, with 4 bits, element 4 + j in its upper ones, so that masks
 * make quads of bytes of them. Without zero points, the zero point of all columns is half the range, 8 or 128. */
#ifndef HETERO_NBITS_H
#define HETERO_NBITS_H

#include "layouts.h"
#include "vec.h"

typedef struct {
    int64_t m, n, k, block, blocks; /* blocks: of a column */
    int64_t words;                  /* of a column in a block */
    int64_t block_bytes;            /* of a panel */
    int bits, has_zeros;
} ht_nbits;

/* ints: m, n, k, bits, block, has_zeros. Returns 0 if they are invalid. */
HT_INLINE int ht_nbits_of(ht_nbits *l, const ht_call *call)
{
    if (call->num_ints != 6 || call->num_out != 1)
        return 0;
    for (int i = 0; i < 6; i++)
        if (call->ints[i] < 0 || call->ints[i] > HT_MAX_BYTES)
            return 0;
    *l = (ht_nbits){.m = call->ints[0], .n = call->ints[1], .k = call->ints[2], .bits = (int)call->ints[3],
                    .block = call->ints[4], .has_zeros = call->ints[5] != 0};
    if ((l->bits != 4 && l->bits != 8) || l->block < 8 || l->block > HT_NBITS_MAX_BLOCK || l->block % 8)
        return 0;
    l->blocks = ht_size_quotient(l->k, l->block);
    l->words = l->block * l->bits / 32;
    l->block_bytes = ht_nbits_block_bytes(l->bits, l->block, l->has_zeros);
    return 1;
}

/* The words of a block. */
HT_INLINE const uint8_t *ht_nbits_words(const ht_nbits *l, const uint8_t *block)
{
    return block + HT_PANEL * (l->has_zeros ? 5 : 4);
}

/* The zero points of VF_LANES columns from `lane` on, as floats. */
HT_INLINE vf ht_nbits_zeros(const ht_nbits *l, const uint8_t *block, int64_t lane)
{
    if (!l->has_zeros)
        return vf_set1(l->bits == 4 ? 8.0f : 128.0f);
    const uint8_t *zeros = block + 4 * HT_PANEL + lane;
#if defined(__AVX512F__)
    return vi_to_float(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)zeros)));
#elif defined(__AVX2__)
    return vi_to_float(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)zeros)));
#else
    return (vf){(float)zeros[0], (float)zeros[1], (float)zeros[2], (float)zeros[3]};
#endif
}

HT_INLINE vi ht_nbits_load(const uint8_t *p) { return vf_bits(vf_load((const float *)(const void *)p)); }

/* Fetches what comes AHEAD bytes after p: the hardware's prefetching stops at each page, and widening hides no misses. */
HT_INLINE void ht_nbits_prefetch(const uint8_t *p)
{
    enum { AHEAD = 2048 };
    __builtin_prefetch(p + AHEAD);
}

/* Writes the sums of one row and VF_LANES columns from `column` on, with a bias per column or NULL. */
HT_INLINE void ht_nbits_store(const ht_nbits *l, const float *bias, float *y, int64_t row, int64_t column, vf sum)
{
    const int64_t left = ht_min64(VF_LANES, l->n - column);
    if (left <= 0)
        return;
    if (bias)
        sum += vf_load_n(bias + column, left);
    vf_store_n(y + row * l->n + column, left, sum);
}

/* Reads the layout and the operands x[m][k], packed weights, bias[n] or NULL, and y[m][n]. Returns HT_OK, or what is
 * wrong with their types and sizes. */
HT_INLINE int ht_nbits_operands(const ht_call *call, ht_nbits *l, const float **x, const uint8_t **packed,
                                const float **bias, float **y)
{
    if (!ht_nbits_of(l, call) || call->num_in < 2)
        return HT_ERR_OPERAND;
    const ht_tensor *a = call->in[0], *w = call->in[1], *b = call->num_in > 2 ? call->in[2] : NULL, *c = call->out[0];
    if (a->dtype != HT_FLOAT32 || w->dtype != HT_UINT8 || c->dtype != HT_FLOAT32 || (b && b->dtype != HT_FLOAT32))
        return HT_ERR_DTYPE;
    if (a->size != ht_size_product(l->m, l->k) || c->size != ht_size_product(l->m, l->n) || (b && b->size != l->n) ||
        w->size != ht_nbits_bytes(l->k, l->n, l->bits, l->block, l->has_zeros))
        return HT_ERR_OPERAND;
    *x = a->data;
    *packed = w->data;
    *bias = b ? b->data : NULL;
    *y = c->data;
    return HT_OK;
}

#endif
