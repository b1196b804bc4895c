/* float32 vectors of the variant's own width: 16 lanes (AVX-512), 8 (AVX2), 4 (SSE2, NEON, anything else).
 *
 * vf: floats; vi: 32-bit integers; vm: one truth value per lane. `_n` loads and stores access the first n lanes only (0
 * <= n <= VF_LANES); the other lanes of a load are zero. vf_load_or reads lanes low .. high - 1 only (0 <= low <= high
 * <= VF_LANES) and takes the others from `other`; p itself may lie before an array. vf_fma rounds once if the machine
 * supports that, else twice. vf_transpose: transposes a square block in place. vf_even, vf_odd: every second lane of a,
 * then of b. vf_zip_low, vf_zip_high: the lanes of a and b alternating, from their first and their second halves.
 * vf_next: lanes 1 and up of a, then lane 0 of b; vf_next_two: lanes 2 and up of a, then lanes 0 and 1 of b; vf_previous:
 * the last lane of a, then all but the last of b. vf_evens, vf_odds: the lanes of vf_even and vf_odd, cheaper and in an
 * order that vf_ordered undoes. vm_range: true in lanes low .. high - 1. vf_load_where reads the lanes that are true only;
 * the others are zero.
 * vf_max and vf_min return their second argument if either is NaN or if both are equal, such as -0 and 0 (as on x86);
 * vf_max_nan and vf_min_nan return NaN.
 */
#ifndef HETERO_VEC_H
#define HETERO_VEC_H

#include "kernel.h"

#include <math.h>
#include <string.h>

#define HT_INLINE static inline __attribute__((always_inline, unused))
#define HT_LIKELY(x) __builtin_expect(!!(x), 1)
#define HT_UNLIKELY(x) __builtin_expect(!!(x), 0)

/* Lanes of vectors a and b (GCC's vector extension) by number; `lanes` is the type of the numbers, as wide as a's elements.
 * Clang has only the first form, and GCC 11 only the second. */
#if defined(__clang__)
#define HT_SHUFFLE(lanes, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define HT_SHUFFLE(lanes, a, b, ...) __builtin_shuffle(a, b, (lanes){__VA_ARGS__})
#endif

HT_INLINE int64_t ht_min64(int64_t a, int64_t b) { return a < b ? a : b; }
HT_INLINE int64_t ht_max64(int64_t a, int64_t b) { return a > b ? a : b; }
HT_INLINE int64_t ht_ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

#if defined(__AVX512F__)
#include <immintrin.h>
#define VF_LANES 16
typedef __m512 vf;
typedef __m512i vi;
typedef __mmask16 vm;

HT_INLINE vf vf_set1(float x) { return _mm512_set1_ps(x); }
HT_INLINE vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
HT_INLINE void vf_store(float *p, vf x) { _mm512_storeu_ps(p, x); }
HT_INLINE vm vm_first(int64_t n) { return (vm)((1u << n) - 1u); }
HT_INLINE vf vf_load_n(const float *p, int64_t n) { return _mm512_maskz_loadu_ps(vm_first(n), p); }
HT_INLINE void vf_store_n(float *p, int64_t n, vf x) { _mm512_mask_storeu_ps(p, vm_first(n), x); }
HT_INLINE vf vf_load_or(const float *p, int64_t low, int64_t high, vf other)
{
    return _mm512_mask_loadu_ps(other, (vm)((1u << high) - (1u << low)), p);
}
HT_INLINE vm vm_range(int64_t low, int64_t high) { return (vm)((1u << high) - (1u << low)); }
HT_INLINE vf vf_load_where(const float *p, vm m) { return _mm512_maskz_loadu_ps(m, p); }
HT_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
HT_INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm512_fnmadd_ps(a, b, c); }
HT_INLINE vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
HT_INLINE vf vf_min(vf a, vf b) { return _mm512_min_ps(a, b); }
HT_INLINE vf vf_sqrt(vf a) { return _mm512_sqrt_ps(a); }
HT_INLINE vf vf_round(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
HT_INLINE vf vf_floor(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC); }
HT_INLINE vf vf_ceil(vf a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC); }
HT_INLINE vm vf_lt(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ); }
HT_INLINE vm vf_le(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
HT_INLINE vm vf_eq(vf a, vf b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
HT_INLINE vm vf_isnan(vf a) { return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q); }
HT_INLINE vm vm_or(vm a, vm b) { return a | b; }
HT_INLINE vm vm_and(vm a, vm b) { return a & b; }
HT_INLINE int vm_any(vm a) { return a != 0; }
HT_INLINE vf vf_select(vm m, vf yes, vf no) { return _mm512_mask_blend_ps(m, no, yes); }
HT_INLINE vi vf_bits(vf a) { return _mm512_castps_si512(a); }
HT_INLINE vf vi_as_float(vi a) { return _mm512_castsi512_ps(a); }
HT_INLINE vi vi_set1(int32_t x) { return _mm512_set1_epi32(x); }
HT_INLINE vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
HT_INLINE vi vi_sub(vi a, vi b) { return _mm512_sub_epi32(a, b); }
HT_INLINE vi vi_and(vi a, vi b) { return _mm512_and_si512(a, b); }
HT_INLINE vi vi_or(vi a, vi b) { return _mm512_or_si512(a, b); }
HT_INLINE vi vi_xor(vi a, vi b) { return _mm512_xor_si512(a, b); }
HT_INLINE vm vi_eq(vi a, vi b) { return _mm512_cmpeq_epi32_mask(a, b); }
#define vi_shl(a, bits) _mm512_slli_epi32(a, bits)
#define vi_shr(a, bits) _mm512_srai_epi32(a, bits) /* arithmetic */
HT_INLINE vi vf_to_int(vf a) { return _mm512_cvtps_epi32(a); } /* of whole numbers below 2^31 */
HT_INLINE vf vi_to_float(vi a) { return _mm512_cvtepi32_ps(a); }
HT_INLINE float vf_hsum(vf a) { return _mm512_reduce_add_ps(a); }
HT_INLINE float vf_hmax_(vf a) { return _mm512_reduce_max_ps(a); }
HT_INLINE float vf_hmin_(vf a) { return _mm512_reduce_min_ps(a); }
HT_INLINE vf vf_even(vf a, vf b)
{
    const vi at = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return _mm512_permutex2var_ps(a, at, b);
}
HT_INLINE vf vf_odd(vf a, vf b)
{
    const vi at = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_permutex2var_ps(a, at, b);
}
HT_INLINE vf vf_zip_low(vf a, vf b)
{
    const vi at = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    return _mm512_permutex2var_ps(a, at, b);
}
HT_INLINE vf vf_zip_high(vf a, vf b)
{
    const vi at = _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    return _mm512_permutex2var_ps(a, at, b);
}
HT_INLINE vf vf_next(vf a, vf b) { return vi_as_float(_mm512_alignr_epi32(vf_bits(b), vf_bits(a), 1)); }
HT_INLINE vf vf_next_two(vf a, vf b) { return vi_as_float(_mm512_alignr_epi32(vf_bits(b), vf_bits(a), 2)); }
HT_INLINE vf vf_previous(vf a, vf b) { return vi_as_float(_mm512_alignr_epi32(vf_bits(b), vf_bits(a), 15)); }
HT_INLINE void vf_transpose(vf r[16])
{
    vf t[16];
    for (int i = 0; i < 16; i += 4) { /* 4 x 4 blocks within each 128-bit lane */
        const vf a = _mm512_unpacklo_ps(r[i], r[i + 1]), b = _mm512_unpackhi_ps(r[i], r[i + 1]);
        const vf c = _mm512_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm512_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm512_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm512_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm512_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm512_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) { /* the 128-bit lanes themselves */
        const vf a = _mm512_shuffle_f32x4(t[i], t[i + 4], 0x88), b = _mm512_shuffle_f32x4(t[i], t[i + 4], 0xdd);
        const vf c = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0x88), d = _mm512_shuffle_f32x4(t[i + 8], t[i + 12], 0xdd);
        r[i] = _mm512_shuffle_f32x4(a, c, 0x88);
        r[i + 4] = _mm512_shuffle_f32x4(b, d, 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(a, c, 0xdd);
        r[i + 12] = _mm512_shuffle_f32x4(b, d, 0xdd);
    }
}

#elif defined(__AVX2__)
#include <immintrin.h>
#define VF_LANES 8
typedef __m256 vf;
typedef __m256i vi;
typedef __m256 vm;

HT_INLINE vf vf_set1(float x) { return _mm256_set1_ps(x); }
HT_INLINE vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
HT_INLINE void vf_store(float *p, vf x) { _mm256_storeu_ps(p, x); }
HT_INLINE vi vm_first_(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
HT_INLINE vf vf_load_n(const float *p, int64_t n) { return _mm256_maskload_ps(p, vm_first_(n)); }
HT_INLINE void vf_store_n(float *p, int64_t n, vf x) /* in parts: AMD's processors take long for a masked store */
{
    __m128 part = _mm256_castps256_ps128(x);
    if (n >= VF_LANES) {
        _mm256_storeu_ps(p, x);
        return;
    }
    if (n >= 4) {
        _mm_storeu_ps(p, part);
        part = _mm256_extractf128_ps(x, 1);
        p += 4;
        n -= 4;
    }
    if (n >= 2) {
        _mm_storel_pi((__m64 *)p, part);
        part = _mm_movehl_ps(part, part);
        p += 2;
        n -= 2;
    }
    if (n == 1)
        _mm_store_ss(p, part);
}
HT_INLINE vf vf_load_or(const float *p, int64_t low, int64_t high, vf other)
{
    const vi lanes = _mm256_andnot_si256(vm_first_(low), vm_first_(high));
    return _mm256_blendv_ps(other, _mm256_maskload_ps(p, lanes), _mm256_castsi256_ps(lanes));
}
HT_INLINE vm vm_range(int64_t low, int64_t high)
{
    return _mm256_castsi256_ps(_mm256_andnot_si256(vm_first_(low), vm_first_(high)));
}
HT_INLINE vf vf_load_where(const float *p, vm m) { return _mm256_maskload_ps(p, _mm256_castps_si256(m)); }
HT_INLINE vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
HT_INLINE vf vf_fnma(vf a, vf b, vf c) { return _mm256_fnmadd_ps(a, b, c); }
HT_INLINE vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
HT_INLINE vf vf_min(vf a, vf b) { return _mm256_min_ps(a, b); }
HT_INLINE vf vf_sqrt(vf a) { return _mm256_sqrt_ps(a); }
HT_INLINE vf vf_round(vf a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
HT_INLINE vf vf_floor(vf a) { return _mm256_floor_ps(a); }
HT_INLINE vf vf_ceil(vf a) { return _mm256_ceil_ps(a); }
HT_INLINE vm vf_lt(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
HT_INLINE vm vf_le(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
HT_INLINE vm vf_eq(vf a, vf b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
HT_INLINE vm vf_isnan(vf a) { return _mm256_cmp_ps(a, a, _CMP_UNORD_Q); }
HT_INLINE vm vm_or(vm a, vm b) { return _mm256_or_ps(a, b); }
HT_INLINE vm vm_and(vm a, vm b) { return _mm256_and_ps(a, b); }
HT_INLINE int vm_any(vm a) { return _mm256_movemask_ps(a) != 0; }
HT_INLINE vf vf_select(vm m, vf yes, vf no) { return _mm256_blendv_ps(no, yes, m); }
HT_INLINE vi vf_bits(vf a) { return _mm256_castps_si256(a); }
HT_INLINE vf vi_as_float(vi a) { return _mm256_castsi256_ps(a); }
HT_INLINE vi vi_set1(int32_t x) { return _mm256_set1_epi32(x); }
HT_INLINE vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
HT_INLINE vi vi_sub(vi a, vi b) { return _mm256_sub_epi32(a, b); }
HT_INLINE vi vi_and(vi a, vi b) { return _mm256_and_si256(a, b); }
HT_INLINE vi vi_or(vi a, vi b) { return _mm256_or_si256(a, b); }
HT_INLINE vi vi_xor(vi a, vi b) { return _mm256_xor_si256(a, b); }
HT_INLINE vm vi_eq(vi a, vi b) { return _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)); }
#define vi_shl(a, bits) _mm256_slli_epi32(a, bits)
#define vi_shr(a, bits) _mm256_srai_epi32(a, bits)
HT_INLINE vi vf_to_int(vf a) { return _mm256_cvtps_epi32(a); }
HT_INLINE vf vi_to_float(vi a) { return _mm256_cvtepi32_ps(a); }
HT_INLINE float vf_hsum(vf a)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}
HT_INLINE float vf_hmax_(vf a)
{
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
}
HT_INLINE float vf_hmin_(vf a)
{
    __m128 s = _mm_min_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    s = _mm_min_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_min_ss(s, _mm_movehdup_ps(s)));
}
HT_INLINE vf vf_pairs_(vf x) { return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(x), 0xd8)); }
HT_INLINE vf vf_even(vf a, vf b) { return vf_pairs_(_mm256_shuffle_ps(a, b, 0x88)); }
HT_INLINE vf vf_odd(vf a, vf b) { return vf_pairs_(_mm256_shuffle_ps(a, b, 0xdd)); }
HT_INLINE vf vf_evens(vf a, vf b) { return _mm256_shuffle_ps(a, b, 0x88); }
HT_INLINE vf vf_odds(vf a, vf b) { return _mm256_shuffle_ps(a, b, 0xdd); }
HT_INLINE vf vf_ordered(vf x) { return vf_pairs_(x); }
HT_INLINE vf vf_zip_low(vf a, vf b)
{
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x20);
}
HT_INLINE vf vf_zip_high(vf a, vf b)
{
    return _mm256_permute2f128_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b), 0x31);
}
HT_INLINE vf vf_next(vf a, vf b)
{
    return _mm256_permutevar8x32_ps(_mm256_blend_ps(a, b, 1), _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 0));
}
HT_INLINE vf vf_next_two(vf a, vf b) { return _mm256_shuffle_ps(a, _mm256_permute2f128_ps(a, b, 0x21), 0x4e); }
HT_INLINE vf vf_previous(vf a, vf b)
{
    return _mm256_permutevar8x32_ps(_mm256_blend_ps(b, a, 0x80), _mm256_setr_epi32(7, 0, 1, 2, 3, 4, 5, 6));
}
HT_INLINE void vf_transpose(vf r[8])
{
    vf t[8];
    for (int i = 0; i < 8; i += 4) {
        const vf a = _mm256_unpacklo_ps(r[i], r[i + 1]), b = _mm256_unpackhi_ps(r[i], r[i + 1]);
        const vf c = _mm256_unpacklo_ps(r[i + 2], r[i + 3]), d = _mm256_unpackhi_ps(r[i + 2], r[i + 3]);
        t[i] = _mm256_shuffle_ps(a, c, 0x44);
        t[i + 1] = _mm256_shuffle_ps(a, c, 0xee);
        t[i + 2] = _mm256_shuffle_ps(b, d, 0x44);
        t[i + 3] = _mm256_shuffle_ps(b, d, 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(t[i], t[i + 4], 0x31);
    }
}

#else /* compiler's vector extensions: SSE2, NEON */
#if defined(__ARM_NEON)
#include <arm_neon.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif
#define VF_LANES 4
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef vi vm;
typedef uint32_t vu_ __attribute__((vector_size(16)));

HT_INLINE vf vf_set1(float x) { return (vf){x, x, x, x}; }
HT_INLINE vf vf_load(const float *p)
{
    vf x;
    memcpy(&x, p, sizeof x);
    return x;
}
HT_INLINE void vf_store(float *p, vf x) { memcpy(p, &x, sizeof x); }
HT_INLINE vf vf_load_n(const float *p, int64_t n)
{
    vf x = {0};
    for (int64_t i = 0; i < n; i++) {
        float element; /* p need not be aligned */
        memcpy(&element, p + i, sizeof element);
        x[i] = element;
    }
    return x;
}
HT_INLINE void vf_store_n(float *p, int64_t n, vf x)
{
    for (int64_t i = 0; i < n; i++)
        p[i] = x[i];
}
HT_INLINE vf vf_load_or(const float *p, int64_t low, int64_t high, vf other)
{
    for (int64_t i = low; i < high; i++)
        other[i] = p[i];
    return other;
}
HT_INLINE vm vm_range(int64_t low, int64_t high)
{
    vm m = {0};
    for (int64_t i = low; i < high; i++)
        m[i] = -1;
    return m;
}
HT_INLINE vf vf_load_where(const float *p, vm m)
{
    vf x = {0};
    for (int i = 0; i < VF_LANES; i++)
        if (m[i])
            x[i] = p[i];
    return x;
}
#if defined(__ARM_NEON)
HT_INLINE vf vf_fma(vf a, vf b, vf c) { return (vf)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
HT_INLINE vf vf_fnma(vf a, vf b, vf c) { return (vf)vfmsq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
HT_INLINE vf vf_sqrt(vf a) { return (vf)vsqrtq_f32((float32x4_t)a); }
HT_INLINE vf vf_round(vf a) { return (vf)vrndnq_f32((float32x4_t)a); }
HT_INLINE vf vf_floor(vf a) { return (vf)vrndmq_f32((float32x4_t)a); }
HT_INLINE vf vf_ceil(vf a) { return (vf)vrndpq_f32((float32x4_t)a); }
#endif
HT_INLINE vm vf_lt(vf a, vf b) { return a < b; }
HT_INLINE vm vf_le(vf a, vf b) { return a <= b; }
HT_INLINE vm vf_eq(vf a, vf b) { return a == b; }
HT_INLINE vm vf_isnan(vf a) { return a != a; }
HT_INLINE vm vm_or(vm a, vm b) { return a | b; }
HT_INLINE vm vm_and(vm a, vm b) { return a & b; }
HT_INLINE int vm_any(vm a) { return (a[0] | a[1] | a[2] | a[3]) != 0; }
HT_INLINE vf vf_select(vm m, vf yes, vf no) { return (vf)((m & (vi)yes) | (~m & (vi)no)); }
#if defined(__SSE2__)
HT_INLINE vf vf_max(vf a, vf b) { return (vf)_mm_max_ps((__m128)a, (__m128)b); }
HT_INLINE vf vf_min(vf a, vf b) { return (vf)_mm_min_ps((__m128)a, (__m128)b); }
#else
/* Hides from Clang where m comes from. For ARM, Clang makes a comparison with zero and a choice one instruction, `fminnm` or
 * `fmaxnm`, for which -0 is less than 0. */
HT_INLINE vm vm_opaque_(vm m)
{
#if defined(__clang__) && defined(__aarch64__)
    __asm__("" : "+w"(m));
#endif
    return m;
}
HT_INLINE vf vf_max(vf a, vf b) { return vf_select(vm_opaque_(a > b), a, b); }
HT_INLINE vf vf_min(vf a, vf b) { return vf_select(vm_opaque_(a < b), a, b); }
#endif
HT_INLINE vi vf_bits(vf a) { return (vi)a; }
HT_INLINE vf vi_as_float(vi a) { return (vf)a; }
HT_INLINE vi vi_set1(int32_t x) { return (vi){x, x, x, x}; }
HT_INLINE vi vi_add(vi a, vi b) { return (vi)((vu_)a + (vu_)b); }
HT_INLINE vi vi_sub(vi a, vi b) { return (vi)((vu_)a - (vu_)b); }
HT_INLINE vi vi_and(vi a, vi b) { return a & b; }
HT_INLINE vi vi_or(vi a, vi b) { return a | b; }
HT_INLINE vi vi_xor(vi a, vi b) { return a ^ b; }
HT_INLINE vm vi_eq(vi a, vi b) { return a == b; }
#define vi_shl(a, bits) ((vi)((vu_)(a) << (bits)))
#define vi_shr(a, bits) ((a) >> (bits))
#if defined(__SSE2__)
HT_INLINE vi vf_to_int(vf a) { return (vi)_mm_cvtps_epi32((__m128)a); }
#else
HT_INLINE vi vf_to_int(vf a) { return __builtin_convertvector(a, vi); }
#endif
HT_INLINE vf vi_to_float(vi a) { return __builtin_convertvector(a, vf); }
#if !defined(__ARM_NEON)
HT_INLINE vf vf_fma(vf a, vf b, vf c) { return a * b + c; }
HT_INLINE vf vf_fnma(vf a, vf b, vf c) { return c - a * b; }
#if defined(__SSE2__)
HT_INLINE vf vf_sqrt(vf a) { return (vf)_mm_sqrt_ps((__m128)a); }
#else
HT_INLINE vf vf_sqrt(vf a) { return (vf){sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3])}; }
#endif
/* Adding and subtracting 2^23 removes the fraction; from 2^23 on every float is an integer. The sign is kept so that
 * -0.2 rounds to -0. */
HT_INLINE vf vf_round(vf a)
{
    const vi sign = (vi)a & vi_set1(INT32_MIN);
    const vf magnitude = (vf)((vi)a ^ sign), big = vf_set1(8388608.0f);
    const vf rounded = (vf)((vi)((magnitude + big) - big) | sign);
    return vf_select(magnitude < big, rounded, a);
}
HT_INLINE vf vf_floor(vf a)
{
    const vi sign = (vi)a & vi_set1(INT32_MIN);
    const vf rounded = vf_round(a);
    return (vf)((vi)(rounded - vf_select(rounded > a, vf_set1(1.0f), vf_set1(0.0f))) | sign);
}
HT_INLINE vf vf_ceil(vf a)
{
    const vi sign = (vi)a & vi_set1(INT32_MIN);
    const vf rounded = vf_round(a);
    return (vf)((vi)(rounded + vf_select(rounded < a, vf_set1(1.0f), vf_set1(0.0f))) | sign);
}
#endif
HT_INLINE float vf_hsum(vf a) { return (a[0] + a[2]) + (a[1] + a[3]); }
HT_INLINE float vf_hmax_(vf a)
{
    const float x = a[0] > a[1] ? a[0] : a[1], y = a[2] > a[3] ? a[2] : a[3];
    return x > y ? x : y;
}
HT_INLINE float vf_hmin_(vf a)
{
    const float x = a[0] < a[1] ? a[0] : a[1], y = a[2] < a[3] ? a[2] : a[3];
    return x < y ? x : y;
}
HT_INLINE vf vf_even(vf a, vf b) { return HT_SHUFFLE(vi, a, b, 0, 2, 4, 6); }
HT_INLINE vf vf_odd(vf a, vf b) { return HT_SHUFFLE(vi, a, b, 1, 3, 5, 7); }
HT_INLINE vf vf_zip_low(vf a, vf b) { return HT_SHUFFLE(vi, a, b, 0, 4, 1, 5); }
HT_INLINE vf vf_zip_high(vf a, vf b) { return HT_SHUFFLE(vi, a, b, 2, 6, 3, 7); }
HT_INLINE vf vf_next(vf a, vf b) { return HT_SHUFFLE(vi, a, b, 1, 2, 3, 4); }
HT_INLINE vf vf_next_two(vf a, vf b) { return HT_SHUFFLE(vi, a, b, 2, 3, 4, 5); }
HT_INLINE vf vf_previous(vf a, vf b) { return HT_SHUFFLE(vi, a, b, 3, 4, 5, 6); }
HT_INLINE void vf_transpose(vf r[4])
{
    const vf a = HT_SHUFFLE(vi, r[0], r[1], 0, 4, 1, 5), b = HT_SHUFFLE(vi, r[0], r[1], 2, 6, 3, 7);
    const vf c = HT_SHUFFLE(vi, r[2], r[3], 0, 4, 1, 5), d = HT_SHUFFLE(vi, r[2], r[3], 2, 6, 3, 7);
    r[0] = HT_SHUFFLE(vi, a, c, 0, 1, 4, 5);
    r[1] = HT_SHUFFLE(vi, a, c, 2, 3, 6, 7);
    r[2] = HT_SHUFFLE(vi, b, d, 0, 1, 4, 5);
    r[3] = HT_SHUFFLE(vi, b, d, 2, 3, 6, 7);
}
#endif

#if !defined(__AVX2__) || defined(__AVX512F__)
HT_INLINE vf vf_evens(vf a, vf b) { return vf_even(a, b); }
HT_INLINE vf vf_odds(vf a, vf b) { return vf_odd(a, b); }
HT_INLINE vf vf_ordered(vf x) { return x; }
#endif

/* Forces a into a register. Otherwise the compiler reloads it for every use, which is slow if the load is unaligned. */
HT_INLINE vf vf_keep(vf a)
{
#if defined(__AVX512F__)
    __asm__("" : "+v"(a));
#elif defined(__SSE2__)
    __asm__("" : "+x"(a));
#elif defined(__aarch64__)
    __asm__("" : "+w"(a));
#endif
    return a;
}
HT_INLINE vf vf_max_nan(vf a, vf b) { return vf_select(vf_isnan(a), a, vf_max(a, b)); }
HT_INLINE vf vf_min_nan(vf a, vf b) { return vf_select(vf_isnan(a), a, vf_min(a, b)); }
HT_INLINE vf vf_abs(vf a) { return vi_as_float(vi_and(vf_bits(a), vi_set1(INT32_MAX))); }
HT_INLINE vf vf_neg(vf a) { return vi_as_float(vi_xor(vf_bits(a), vi_set1(INT32_MIN))); }
HT_INLINE vf vf_copysign(vf magnitude, vf sign)
{
    return vi_as_float(vi_or(vi_and(vf_bits(magnitude), vi_set1(INT32_MAX)),
                             vi_and(vf_bits(sign), vi_set1(INT32_MIN))));
}
/* The largest and the smallest lane; NaN if any lane is. */
HT_INLINE float vf_hmax(vf a) { return HT_UNLIKELY(vm_any(vf_isnan(a))) ? NAN : vf_hmax_(a); }
HT_INLINE float vf_hmin(vf a) { return HT_UNLIKELY(vm_any(vf_isnan(a))) ? NAN : vf_hmin_(a); }

/* Fetches a cache line that is written soon, with the right to write it: another processor may have it. */
HT_INLINE void ht_fetch_to_write(const float *p)
{
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*p));
#else
    __builtin_prefetch(p, 1, 3);
#endif
}

#endif
