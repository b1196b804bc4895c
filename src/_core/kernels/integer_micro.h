/* Products of small integers with exact 32-bit sums, shared by integer_gemm.c and conv_integer.c.
 *
 * Both operands are int16: 8-bit values with their zero points taken off, -255 .. 255. Two neighbours along k lie
 * together, because one instruction (pmaddwd) multiplies pairs and adds both products: twice the multiply-adds per
 * instruction of float32.
 *
 * Packed B: panels of HT_PANEL columns, each ceil(k / 2) x HT_PANEL x 2, padded with zeros (columns, odd k).
 * A is read in place: rows of k.
 */
#ifndef HETERO_INTEGER_MICRO_H
#define HETERO_INTEGER_MICRO_H

#include "gemm_micro.h"

/* int16 elements of one packed panel. */
HT_INLINE int64_t ht_pairs_panel(int64_t k) { return (k + 1) / 2 * 2 * HT_PANEL; }

/* Multiply pairs of int16, add both products; 32-bit lanes. */
HT_INLINE vi vi_multiply_pairs(vi a, vi b)
{
#if defined(__AVX512F__)
    return _mm512_madd_epi16(a, b);
#elif defined(__AVX2__)
    return _mm256_madd_epi16(a, b);
#elif defined(__SSE2__)
    return (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return vi_shr(vi_shl(a, 16), 16) * vi_shr(vi_shl(b, 16), 16) + vi_shr(a, 16) * vi_shr(b, 16);
#endif
}

/* C[rows][columns] = bias[row] + A x B; sums wrap. bias: NULL or one per row. */
#define ht_integer_product HT_KERNEL(integer_product)
void ht_integer_product(const int16_t *a, int64_t a_row, const int16_t *b, int64_t k, int32_t *c, int64_t c_row,
                        const int32_t *bias, int64_t rows, int64_t columns);

/* Two rows of a packed B, interleaved: dst[panel][.][2] of `columns` columns; `second` may be NULL (zeros). */
HT_INLINE void ht_interleave_rows(const int16_t *first, const int16_t *second, int64_t columns, int16_t *dst,
                                  int64_t panel)
{
    for (int64_t j = 0; j < columns; j += HT_PANEL, dst += panel) {
        const int64_t n = ht_min64(HT_PANEL, columns - j);
        if (n == HT_PANEL && second) {
            uint32_t both[HT_PANEL]; /* little-endian, as all variants are; GCC leaves stores by twos scalar */
            for (int i = 0; i < HT_PANEL; i++)
                both[i] = (uint16_t)first[j + i] | (uint32_t)(uint16_t)second[j + i] << 16;
            memcpy(dst, both, sizeof both);
        } else {
            for (int i = 0; i < HT_PANEL; i++) {
                dst[2 * i] = i < n ? first[j + i] : 0;
                dst[2 * i + 1] = i < n && second ? second[j + i] : 0;
            }
        }
    }
}

#endif
