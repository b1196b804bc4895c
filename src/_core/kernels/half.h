/* float16 and bfloat16 to float32 and back, by integer arithmetic: rounds to nearest even, keeps infinities and NaN
 * (quiet). After F. Giesen, "half to float and back", https://gist.github.com/rygorous/2156668 (public domain).
 */
#ifndef HETERO_HALF_H
#define HETERO_HALF_H

#include <stdint.h>
#include <string.h>

static inline float ht_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t ht_to_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float ht_float_of_half(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, rest = half & 0x7fffu;
    if (rest >= 0x7c00u) /* infinity, NaN */
        return ht_from_bits(sign | 0x7f800000u | ((rest & 0x3ffu) << 13) | (rest > 0x7c00u ? 0x400000u : 0));
    if (rest < 0x400u) /* zero, subnormal: an exact integer times 2^-24 */
        return ht_from_bits(ht_to_bits((float)rest * 0x1p-24f) | sign);
    return ht_from_bits(sign | ((rest << 13) + (112u << 23)));
}

static inline uint16_t ht_half_of_float(float value)
{
    const uint32_t bits = ht_to_bits(value), sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* rounds to 2^16 or more */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) /* subnormal: adding 0.5 puts the rounded result in the last bits */
        return (uint16_t)(sign | (ht_to_bits(ht_from_bits(magnitude) + 0.5f) - 0x3f000000u));
    return (uint16_t)(sign | ((magnitude + 0xc8000fffu + ((magnitude >> 13) & 1u)) >> 13));
}

static inline float ht_float_of_bfloat16(uint16_t value) { return ht_from_bits((uint32_t)value << 16); }

static inline uint16_t ht_bfloat16_of_float(float value)
{
    const uint32_t bits = ht_to_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((bits >> 16) | 0x40u);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

#endif
