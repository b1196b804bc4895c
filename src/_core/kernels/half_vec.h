/* Vectors of float16 and bfloat16 as float32: the same bits as half.h, as fast as the instruction set allows. */
#ifndef HETERO_HALF_VEC_H
#define HETERO_HALF_VEC_H

#include "half.h"
#include "vec.h"

/* Loads VF_LANES halves as floats. dtype: HT_FLOAT16 or HT_BFLOAT16; a compile-time constant for speed. */
HT_INLINE vf vf_load_half(const uint16_t *p, const int32_t dtype)
{
#if defined(__AVX512F__)
    const __m256i halves = _mm256_loadu_si256((const __m256i *)(const void *)p);
    return dtype == HT_FLOAT16 ? _mm512_cvtph_ps(halves)
                               : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
#elif defined(__AVX2__)
    const __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)p);
    return dtype == HT_FLOAT16 ? _mm256_cvtph_ps(halves)
                               : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
#else
    float wide[VF_LANES];
    for (int i = 0; i < VF_LANES; i++)
        wide[i] = dtype == HT_FLOAT16 ? ht_float_of_half(p[i]) : ht_float_of_bfloat16(p[i]);
    return vf_load(wide);
#endif
}

/* y = x as float32. */
HT_INLINE void ht_widen(const uint16_t *x, const int32_t dtype, float *y, int64_t n)
{
    int64_t i = 0;
    for (; i + VF_LANES <= n; i += VF_LANES)
        vf_store(y + i, vf_load_half(x + i, dtype));
    for (; i < n; i++)
        y[i] = dtype == HT_FLOAT16 ? ht_float_of_half(x[i]) : ht_float_of_bfloat16(x[i]);
}

/* y = x as float16, rounded to nearest even. */
HT_INLINE void ht_round_to_half(const float *x, uint16_t *y, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX512F__)
    for (; i + VF_LANES <= n; i += VF_LANES)
        _mm256_storeu_si256((__m256i *)(void *)(y + i), _mm512_cvtps_ph(vf_load(x + i), _MM_FROUND_TO_NEAREST_INT));
#elif defined(__AVX2__)
    for (; i + VF_LANES <= n; i += VF_LANES)
        _mm_storeu_si128((__m128i *)(void *)(y + i), _mm256_cvtps_ph(vf_load(x + i), _MM_FROUND_TO_NEAREST_INT));
#endif
    for (; i < n; i++)
        y[i] = ht_half_of_float(x[i]);
}

#endif
