/* Vectors of quads of bytes, and their products: see integer_micro.h. */
#ifndef HETERO_INTEGER_VEC_H
#define HETERO_INTEGER_VEC_H

#include "integer_micro.h"

#define VECTOR_BYTES (VF_LANES * HT_QUAD)

HT_INLINE vi load(const uint8_t *p) { return vf_bits(vf_load((const float *)(const void *)p)); }

HT_INLINE vi everywhere(const uint8_t *p)
{
    int32_t quad;
    memcpy(&quad, p, sizeof quad);
    return vi_set1(quad);
}

#if HT_VNNI
/* acc + four products of unsigned by signed bytes, per lane. Inline assembly, because GCC 12 copies every accumulator
 * around the intrinsic and runs out of registers, which halves the speed. */
HT_INLINE vi multiply_quads(vi acc, vi is_unsigned, vi is_signed)
{
#if defined(__AVX512VNNI__)
    __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(is_unsigned), "v"(is_signed));
#else
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(acc) : "x"(is_unsigned), "x"(is_signed));
#endif
    return acc;
}
#else
#if HT_SMALL_TILES
/* The same, exactly if `is_signed` is small. */
HT_INLINE vi multiply_quads(vi acc, vi is_unsigned, vi is_signed)
{
    vi products;
#if defined(__AVX512F__)
    __asm__("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
            : "+v"(acc), "=&v"(products)
            : "v"(is_unsigned), "v"(is_signed), "v"(_mm512_set1_epi16(1)));
#else /* ones in memory, because the accumulators of a tile need their register */
    static const int16_t ones[16] __attribute__((aligned(32))) = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    __asm__("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
            : "+x"(acc), "=&x"(products)
            : "x"(is_unsigned), "x"(is_signed), "m"(ones));
#endif
    return acc;
}
#endif

#if HT_TINY_TILES
/* acc + the products of two quads each, which `a` holds in every lane: first all of the even quad, then all of the odd one.
 * Exactly if they are tiny. */
HT_INLINE vi multiply_two_quads(vi acc, vi even, vi odd, const vi *a)
{
    vi v0, v1;
    __asm__("vpmaddubsw %3, %5, %1\n\tvpmaddubsw %4, %6, %2\n\tvpaddw %2, %1, %1\n\tvpmaddwd %7, %1, %1\n\tvpaddd %1, %0, %0"
            : "+x"(acc), "=&x"(v0), "=&x"(v1)
            : "m"(a[0]), "m"(a[1]), "x"(even), "x"(odd), "x"(_mm256_set1_epi16(1)));
    return acc;
}

/* multiply_quads with a quad in memory. */
HT_INLINE vi multiply_expanded(vi acc, vi is_unsigned, const vi *a)
{
    vi products;
    __asm__("vpmaddubsw %2, %3, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
            : "+x"(acc), "=&x"(products)
            : "m"(*a), "x"(is_unsigned), "x"(_mm256_set1_epi16(1)));
    return acc;
}
#endif

/* Elements 0 and 2 of each quad (half 0), or 1 and 3 (half 1), as pairs of int16. */
HT_INLINE vi pairs_of(vi quads, const int half, const int is_signed)
{
#if defined(__AVX512F__)
    if (!is_signed)
        return half ? _mm512_srli_epi16(quads, 8) : _mm512_and_si512(quads, _mm512_set1_epi16(0xff));
    return _mm512_srai_epi16(half ? quads : _mm512_slli_epi16(quads, 8), 8);
#elif defined(__AVX2__)
    if (!is_signed && half)
        return _mm256_srli_epi16(quads, 8);
    if (!is_signed) { /* a mask in memory, because the accumulators of a tile need its register */
        static const uint16_t mask[16] __attribute__((aligned(32))) = {255, 255, 255, 255, 255, 255, 255, 255,
                                                                       255, 255, 255, 255, 255, 255, 255, 255};
        vi masked;
        __asm__("vpand %2, %1, %0" : "=x"(masked) : "x"(quads), "m"(mask));
        return masked;
    }
    return _mm256_srai_epi16(half ? quads : _mm256_slli_epi16(quads, 8), 8);
#else
    typedef int16_t shorts __attribute__((vector_size(16)));
    typedef uint16_t words __attribute__((vector_size(16)));
    if (!is_signed)
        return half ? (vi)((words)quads >> 8) : (vi)((words)quads & 0xff);
    return (vi)((shorts)(half ? (words)quads : (words)quads << 8) >> 8);
#endif
}

/* acc + both products of pairs of int16, per 32-bit lane. Inline assembly as above: GCC 12 adds the products of two steps
 * first and keeps the accumulators on the stack, which more than doubles the time. */
HT_INLINE vi add_products(vi acc, vi a, vi b)
{
#if defined(__AVX512F__)
    vi products;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(acc), "=&v"(products) : "v"(a), "v"(b));
    return acc;
#elif defined(__AVX2__)
    vi products;
    __asm__("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+x"(acc), "=&x"(products) : "x"(a), "x"(b));
    return acc;
#elif defined(__SSE2__)
    return vi_add(acc, (vi)_mm_madd_epi16((__m128i)a, (__m128i)b));
#else
    return vi_add(acc, vi_shr(vi_shl(a, 16), 16) * vi_shr(vi_shl(b, 16), 16) + vi_shr(a, 16) * vi_shr(b, 16));
#endif
}
#endif

#endif
