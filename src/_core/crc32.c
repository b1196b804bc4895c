/* CRC-32 by carry-less multiplication.
 *
 * V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ Instruction" (Intel, 2009), in its
 * bit-reflected form: 64 bytes at a time are folded into four 128-bit remainders, these into one, this into 64 bits,
 * and these by a Barrett reduction into 32 bits. About 8 bytes per cycle; zlib's tables take about one cycle per byte.
 *
 * The function enables the instruction with its own attribute instead of being part of a kernel variant, so that
 * reading an artifact does not load the kernels.
 */
#include "crc32.h"

#if (defined(__x86_64__) || defined(__i386__)) && defined(__GNUC__)

#include <cpuid.h>
#include <smmintrin.h>
#include <wmmintrin.h>

int ht_crc32_available(void)
{
    /* CPUID itself: see kernels/registry.c. */
    const unsigned needed = 1u << 1 | 1u << 19; /* PCLMULQDQ, SSE4.1 */
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & needed) == needed;
}

#define FOLDING __attribute__((target("pclmul,sse4.1")))

/* x^(distance +- 32) mod P, bit-reflected, for folding over 512, 128 and 64 bits; then P's inverse and P. */
static const uint64_t fold_512[2] = {0x0154442bd4, 0x01c6e41596};
static const uint64_t fold_128[2] = {0x01751997d0, 0x00ccaa009e};
static const uint64_t fold_64[2] = {0x0163cd6124, 0};
static const uint64_t barrett[2] = {0x01db710641, 0x01f7011641};

FOLDING static inline __m128i load(const void *at)
{
    return _mm_loadu_si128((const __m128i *)at);
}

FOLDING static inline __m128i fold(__m128i remainder, __m128i by, __m128i next)
{
    const __m128i low = _mm_clmulepi64_si128(remainder, by, 0x00);
    const __m128i high = _mm_clmulepi64_si128(remainder, by, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* `size` is a multiple of 16, at least 64; `crc` is not inverted. */
FOLDING static uint32_t folded(uint32_t crc, const unsigned char *data, size_t size)
{
    __m128i x0 = _mm_xor_si128(load(data), _mm_cvtsi32_si128((int)crc));
    __m128i x1 = load(data + 16), x2 = load(data + 32), x3 = load(data + 48);
    __m128i by = load(fold_512);
    for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
        x0 = fold(x0, by, load(data));
        x1 = fold(x1, by, load(data + 16));
        x2 = fold(x2, by, load(data + 32));
        x3 = fold(x3, by, load(data + 48));
    }
    by = load(fold_128);
    x0 = fold(x0, by, x1);
    x0 = fold(x0, by, x2);
    x0 = fold(x0, by, x3);
    for (; size >= 16; data += 16, size -= 16)
        x0 = fold(x0, by, load(data));

    const __m128i mask = _mm_setr_epi32(~0, 0, ~0, 0);
    x1 = _mm_clmulepi64_si128(x0, by, 0x10);
    x0 = _mm_xor_si128(_mm_srli_si128(x0, 8), x1);
    x1 = _mm_srli_si128(x0, 4);
    x0 = _mm_clmulepi64_si128(_mm_and_si128(x0, mask), load(fold_64), 0x00);
    x0 = _mm_xor_si128(x0, x1);

    by = load(barrett);
    x1 = _mm_clmulepi64_si128(_mm_and_si128(x0, mask), by, 0x10);
    x1 = _mm_clmulepi64_si128(_mm_and_si128(x1, mask), by, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x0, x1), 1);
}

/* The bytes that do not fill whole blocks: fewer than 64 of a short input, or fewer than 16 at the end. */
static uint32_t by_bits(uint32_t crc, const unsigned char *data, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0u);
    }
    return crc;
}

uint32_t ht_crc32(uint32_t crc, const unsigned char *data, size_t size)
{
    crc = ~crc;
    const size_t whole = size >= 64 ? size & ~(size_t)15 : 0;
    if (whole)
        crc = folded(crc, data, whole);
    return ~by_bits(crc, data + whole, size - whole);
}

#else

int ht_crc32_available(void)
{
    return 0;
}

uint32_t ht_crc32(uint32_t crc, const unsigned char *data, size_t size)
{
    (void)data;
    (void)size;
    return crc;
}

#endif
