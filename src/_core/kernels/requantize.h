/* From 32-bit sums to bytes: y = saturate(round(x * scale) + zero), in float32, halves to even. x is rounded to float32
 * first. onnxruntime computes the same, and so does every instruction set. NaN gives the smallest value.
 *
 * A product whose bias is float32 has it as an offset in units of y: round(x * scale + offset). With fused
 * multiplication and addition, the sum is rounded once.
 */
#ifndef HETERO_REQUANTIZE_H
#define HETERO_REQUANTIZE_H

#include "kernel.h"
#include "vec.h"

/* Adding 1.5 * 2^23 rounds to nearest, halves to even, because it leaves no bits for a fraction; it puts the integer,
 * below 2^22, in the lowest bits. */
#define HT_ROUND_SHIFT 12582912.0f

HT_INLINE int32_t ht_requantize_one(int32_t x, float scale, int32_t zero, int32_t low, int32_t high)
{
    float v = (float)x * scale;
    v = v >= (float)(low - zero) ? v : (float)(low - zero); /* NaN too */
    v = v <= (float)(high - zero) ? v : (float)(high - zero);
    return (int32_t)((v + HT_ROUND_SHIFT) - HT_ROUND_SHIFT) + zero;
}

/* Whether a product supports the type of its bias. */
HT_INLINE int ht_bias_fits(const ht_tensor *bias, int to_bytes)
{
    return !bias || bias->dtype == HT_INT32 || (to_bytes && bias->dtype == HT_FLOAT32);
}

/* A bias that is added to the sums; NULL if the product has none of this kind. */
HT_INLINE const int32_t *ht_bias_of(const ht_tensor *bias)
{
    return bias && bias->dtype == HT_INT32 ? bias->data : NULL;
}

/* A bias that is added to the scaled sums, from element `first` on, and the step between its elements: 1. If the product
 * has none of this kind, a zero and the step 0. */
HT_INLINE const float *ht_offset_of(const ht_tensor *bias, int64_t first, int64_t *step)
{
    static const float none = 0;
    *step = bias && bias->dtype == HT_FLOAT32;
    return *step ? (const float *)bias->data + first : &none;
}

/* Elements at a time: whole vectors in every instruction set, and no more than the columns of a tile of integers. */
#if defined(__AVX512F__)
#define HT_REQUANTIZE_BLOCK 32
#else
#define HT_REQUANTIZE_BLOCK 16
#endif

#if defined(__AVX512F__)
/* Both halves of two rows, of 16 numbers each, to bytes: the first row comes first. As below, numbers above `highest`, and no
 * others, are bounded before they are rounded; zeros: the zero point in each element. */
HT_INLINE __m512i ht_requantize_pair(const __m512 v[4], __m512 highest, __m512i zeros, int is_signed)
{
    __m512i words[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        words[i] = _mm512_adds_epi16(_mm512_packs_epi32(_mm512_cvtps_epi32(_mm512_min_ps(highest, v[2 * i])),
                                                        _mm512_cvtps_epi32(_mm512_min_ps(highest, v[2 * i + 1]))),
                                     zeros);
    const __m512i bytes = is_signed ? _mm512_packs_epi16(words[0], words[1]) : _mm512_packus_epi16(words[0], words[1]);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15); /* packing is by 128 bits */
    return _mm512_permutexvar_epi32(order, bytes);
}
#endif

/* y[i] = saturate(round(v[i]) + zero) for HT_BYTES_TOGETHER floats, halves to even, as bytes, signed if `is_signed`; NaN gives the
 * smallest. zero: from -128 to 255. */
#define HT_BYTES_TOGETHER (4 * VF_LANES)
HT_INLINE void ht_round_to_bytes(const vf v[4], int32_t zero, int is_signed, uint8_t *y)
{
#if defined(__AVX512F__)
    _mm512_storeu_si512(y, ht_requantize_pair(v, vf_set1(65536.0f), _mm512_set1_epi16((int16_t)zero), is_signed));
#elif defined(__AVX2__)
    __m256i words[2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) /* the conversion of NaN is the least int32; the minimum keeps the second operand if it is NaN */
        words[i] = _mm256_adds_epi16(
            _mm256_packs_epi32(_mm256_cvtps_epi32(_mm256_min_ps(vf_set1(65536.0f), v[2 * i])),
                               _mm256_cvtps_epi32(_mm256_min_ps(vf_set1(65536.0f), v[2 * i + 1]))),
            _mm256_set1_epi16((int16_t)zero));
    const __m256i bytes = is_signed ? _mm256_packs_epi16(words[0], words[1]) : _mm256_packus_epi16(words[0], words[1]);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* packing is by 128 bits */
    _mm256_storeu_si256((__m256i *)(void *)y, _mm256_permutevar8x32_epi32(bytes, order));
#else
    const vf low = vf_set1((float)((is_signed ? INT8_MIN : 0) - zero));
    const vf high = vf_set1((float)((is_signed ? INT8_MAX : UINT8_MAX) - zero));
    int32_t whole[HT_BYTES_TOGETHER];
    for (int i = 0; i < 4; i++) {
        const vf inside = vf_min(vf_max(vf_round(v[i]), low), high); /* in this order NaN is `low` */
        vf_store((float *)(void *)(whole + i * VF_LANES), vi_as_float(vi_add(vf_to_int(inside), vi_set1(zero))));
    }
    for (int i = 0; i < HT_BYTES_TOGETHER; i++)
        y[i] = (uint8_t)whole[i];
#endif
}

/* 1 / scale where it has all its bits, else 0. */
HT_INLINE float ht_reciprocal(float scale) { return scale >= 0x1p-100f && scale <= 0x1p100f ? 1 / scale : 0; }

/* v = v / scale, up to differences that rounding to bytes removes. Multiplying by the reciprocal is faster than dividing.
 * If the quotient is below 512, the two differ by less than three half units in its last place, 2^-13.4, so they round to
 * the same integer unless a quotient is that close to the middle of two integers. Above 511, both saturate, whatever the
 * zero point. reciprocal: ht_reciprocal(scale). */
HT_INLINE void ht_quotients(vf v[4], float scale, float reciprocal)
{
    vf products[4], far = vf_set1(0.0f); /* the largest distance from an integer; infinities and NaN have none */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        products[i] = v[i] * vf_set1(reciprocal);
        far = vf_max(vf_abs(products[i] - vf_round(products[i])), far);
    }
    if (reciprocal != 0 && HT_LIKELY(!vm_any(vf_lt(vf_set1(0.5f - 0x1p-13f), far)))) {
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            v[i] = products[i];
        return;
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        v[i] = v[i] / vf_set1(scale);
}

/* VF_LANES bytes as floats. */
HT_INLINE vf ht_bytes_as_floats(const uint8_t *x, int is_signed)
{
#if defined(__AVX512F__)
    const __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)x);
    return vi_to_float(is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes));
#elif defined(__AVX2__)
    const __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)x);
    return vi_to_float(is_signed ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes));
#else
    vi bytes;
    for (int i = 0; i < VF_LANES; i++)
        bytes[i] = is_signed ? (int8_t)x[i] : x[i];
    return vi_to_float(bytes);
#endif
}

/* Converts n sums to bytes, signed if `is_signed`; scale_step, offset_step: 0 or 1. */
HT_INLINE void ht_requantize_row(const int32_t *x, const float *scale, int64_t scale_step, const float *offset,
                                 int64_t offset_step, int32_t zero, int is_signed, uint8_t *y, int64_t n)
{
    const int32_t low = is_signed ? INT8_MIN : 0, high = is_signed ? INT8_MAX : UINT8_MAX;
    const vf lowest = vf_set1((float)(low - zero)), highest = vf_set1((float)(high - zero));
    /* Whole blocks are rounded by the conversion to int32, whose result for NaN and for numbers below its range is the
     * least number, as needed; a minimum keeps numbers within its range above. Packing saturates. */
    const vf shift = vf_set1(HT_ROUND_SHIFT);
    int32_t whole[HT_REQUANTIZE_BLOCK];
#if defined(__AVX512F__)
    const __m512i zeros = _mm512_set1_epi16((int16_t)zero);
    const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0); /* packing is by 128 bits */
#endif
    for (int64_t at = 0; at < n; at += HT_REQUANTIZE_BLOCK) {
        const int64_t count = ht_min64(HT_REQUANTIZE_BLOCK, n - at);
#if defined(__AVX512F__)
        if (HT_LIKELY(count == HT_REQUANTIZE_BLOCK)) {
            __m512i rounded[2];
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                const __m512 sums = _mm512_cvtepi32_ps(_mm512_loadu_si512(x + at + 16 * i));
                const __m512 s = scale_step ? _mm512_loadu_ps(scale + at + 16 * i) : _mm512_set1_ps(*scale);
                const __m512 o = offset_step ? _mm512_loadu_ps(offset + at + 16 * i) : _mm512_set1_ps(*offset);
                const __m512 v = _mm512_min_ps(highest, vf_fma(sums, s, o));
                rounded[i] = _mm512_cvtps_epi32(v);
            }
            const __m512i words = _mm512_adds_epi16(_mm512_packs_epi32(rounded[0], rounded[1]), zeros);
            const __m512i bytes = is_signed ? _mm512_packs_epi16(words, words) : _mm512_packus_epi16(words, words);
            _mm256_storeu_si256((__m256i *)(void *)(y + at), _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, bytes)));
            continue;
        }
#elif defined(__AVX2__)
        if (HT_LIKELY(count == HT_REQUANTIZE_BLOCK)) {
            __m256i rounded[2];
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                const __m256 sums = _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)(const void *)(x + at + 8 * i)));
                const __m256 s = scale_step ? _mm256_loadu_ps(scale + at + 8 * i) : _mm256_set1_ps(*scale);
                const __m256 o = offset_step ? _mm256_loadu_ps(offset + at + 8 * i) : _mm256_set1_ps(*offset);
                const __m256 v = _mm256_min_ps(highest, vf_fma(sums, s, o));
                rounded[i] = _mm256_cvtps_epi32(v);
            }
            __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(rounded[0], rounded[1]), 0xd8);
            words = _mm256_adds_epi16(words, _mm256_set1_epi16((int16_t)zero));
            const __m128i low_words = _mm256_castsi256_si128(words), high_words = _mm256_extracti128_si256(words, 1);
            _mm_storeu_si128((__m128i *)(void *)(y + at), is_signed ? _mm_packs_epi16(low_words, high_words)
                                                                  : _mm_packus_epi16(low_words, high_words));
            continue;
        }
#endif
        for (int64_t i = 0; i < count; i += VF_LANES) {
            const int64_t left = ht_min64(VF_LANES, count - i);
            const vf sums = vi_to_float(vf_bits(vf_load_n((const float *)(const void *)(x + at + i), left)));
            const vf s = scale_step ? vf_load_n(scale + at + i, left) : vf_set1(*scale);
            const vf o = offset_step ? vf_load_n(offset + at + i, left) : vf_set1(*offset);
            const vf rounded = vf_min(vf_max(vf_fma(sums, s, o), lowest), highest) + shift;
            vf_store((float *)(void *)(whole + i), vi_as_float(vi_add(vf_bits(rounded), vi_set1(zero))));
        }
        if (HT_LIKELY(count == HT_REQUANTIZE_BLOCK))
            for (int64_t i = 0; i < HT_REQUANTIZE_BLOCK; i++)
                y[at + i] = (uint8_t)whole[i];
        else
            for (int64_t i = 0; i < count; i++)
                y[at + i] = (uint8_t)whole[i];
    }
}

#endif
