/* Comparisons, logic and bit operations of two operands. Operands and broadcasting: binary.h.
 *
 *   equal less less_or_equal greater greater_or_equal   out is bool; equal also takes bool
 *   and or xor                                          bool
 *   bitwise_and bitwise_or bitwise_xor                  integers
 *   shift_left shift_right                              integers; a shift by the width or more, or by a negative
 *                                                       count, gives 0 (signed right shifts: 0 or -1)
 */
#include "binary.h"

#define ROWS_EQUAL(D, s, T, U) HT_BINARY_ROW(equal_##s, T, uint8_t, x == y)
#define ROWS_LESS(D, s, T, U) HT_BINARY_ROW(less_##s, T, uint8_t, x < y)
#define ROWS_LESS_OR_EQUAL(D, s, T, U) HT_BINARY_ROW(less_or_equal_##s, T, uint8_t, x <= y)
#define RARE_EQUAL(D, s, T, U) HT_BINARY_RARE_ROW(equal_##s, T, uint8_t, x == y)
#define RARE_LESS(D, s, T, U) HT_BINARY_RARE_ROW(less_##s, T, uint8_t, x < y)
#define RARE_LESS_OR_EQUAL(D, s, T, U) HT_BINARY_RARE_ROW(less_or_equal_##s, T, uint8_t, x <= y)
HT_COMMON_BIT_TYPES(ROWS_EQUAL)
HT_COMMON_TYPES(ROWS_LESS)
HT_COMMON_TYPES(ROWS_LESS_OR_EQUAL)
HT_RARE_BIT_TYPES(RARE_EQUAL)
HT_RARE_TYPES(RARE_LESS)
HT_RARE_TYPES(RARE_LESS_OR_EQUAL)

/* x > y is y < x. */
#define SWAPPED(name, other)                                                                                   \
    static int name(const void *a, const void *b, void *out, int64_t n, int a_step, int b_step)                \
    {                                                                                                          \
        return other(b, a, out, n, b_step, a_step);                                                            \
    }
#define ROWS_GREATER(D, s, T, U) SWAPPED(greater_##s, less_##s)
#define ROWS_GREATER_OR_EQUAL(D, s, T, U) SWAPPED(greater_or_equal_##s, less_or_equal_##s)
HT_NUMERIC_TYPES(ROWS_GREATER)
HT_NUMERIC_TYPES(ROWS_GREATER_OR_EQUAL)

HT_BINARY_RARE_ROW(and_b, uint8_t, uint8_t, (x != 0) & (y != 0))
HT_BINARY_RARE_ROW(or_b, uint8_t, uint8_t, (x != 0) | (y != 0))
HT_BINARY_RARE_ROW(xor_b, uint8_t, uint8_t, (x != 0) ^ (y != 0))

#define ROWS_BITWISE(D, s, T, U)                    \
    HT_BINARY_RARE_ROW(bitwise_and_##s, T, T, x &y) \
    HT_BINARY_RARE_ROW(bitwise_or_##s, T, T, x | y) \
    HT_BINARY_RARE_ROW(bitwise_xor_##s, T, T, x ^ y)
HT_UNSIGNED_TYPES(ROWS_BITWISE)

#define BITS(T) (8 * (int64_t)sizeof(T))
/* A negative or too large count shifts out all bits, leaving copies of the sign. */
#define ROWS_SHIFT_SIGNED(D, s, T, U) \
    HT_BINARY_RARE_ROW(shift_right_##s, T, T, x >> (y >= 0 && y < BITS(T) ? y : BITS(T) - 1))
#define ROWS_SHIFT_UNSIGNED(D, s, T, U)                                     \
    HT_BINARY_RARE_ROW(shift_left_##s, T, T, y < BITS(T) ? (U)x << y : 0)   \
    HT_BINARY_RARE_ROW(shift_right_##s, T, T, y < BITS(T) ? x >> y : 0)
HT_SIGNED_TYPES(ROWS_SHIFT_SIGNED)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wsign-compare"
HT_UNSIGNED_TYPES(ROWS_SHIFT_UNSIGNED)
#pragma GCC diagnostic pop

#define CASE_EQUAL(D, s, T, U) case D: row = equal_##s; break;
#define CASE_LESS(D, s, T, U) case D: row = less_##s; break;
#define CASE_LESS_OR_EQUAL(D, s, T, U) case D: row = less_or_equal_##s; break;
#define CASE_GREATER(D, s, T, U) case D: row = greater_##s; break;
#define CASE_GREATER_OR_EQUAL(D, s, T, U) case D: row = greater_or_equal_##s; break;
#define CASE_BITWISE_AND(D, s, T, U) case D: row = bitwise_and_##s; break;
#define CASE_BITWISE_OR(D, s, T, U) case D: row = bitwise_or_##s; break;
#define CASE_BITWISE_XOR(D, s, T, U) case D: row = bitwise_xor_##s; break;
#define CASE_SHIFT_LEFT(D, s, T, U) case D: row = shift_left_##s; break;
#define CASE_SHIFT_RIGHT(D, s, T, U) case D: row = shift_right_##s; break;
HT_BINARY_KERNEL(equal, HT_BOOL, dtype == HT_BOOL ? HT_UINT8 : ht_unsigned(dtype), HT_BIT_TYPES(CASE_EQUAL))
HT_BINARY_KERNEL(less, HT_BOOL, dtype, HT_NUMERIC_TYPES(CASE_LESS))
HT_BINARY_KERNEL(less_or_equal, HT_BOOL, dtype, HT_NUMERIC_TYPES(CASE_LESS_OR_EQUAL))
HT_BINARY_KERNEL(greater, HT_BOOL, dtype, HT_NUMERIC_TYPES(CASE_GREATER))
HT_BINARY_KERNEL(greater_or_equal, HT_BOOL, dtype, HT_NUMERIC_TYPES(CASE_GREATER_OR_EQUAL))
HT_BINARY_KERNEL(and, dtype, dtype, case HT_BOOL: row = and_b; break;)
HT_BINARY_KERNEL(or, dtype, dtype, case HT_BOOL: row = or_b; break;)
HT_BINARY_KERNEL(xor, dtype, dtype, case HT_BOOL: row = xor_b; break;)
HT_BINARY_KERNEL(bitwise_and, dtype, ht_unsigned(dtype), HT_UNSIGNED_TYPES(CASE_BITWISE_AND))
HT_BINARY_KERNEL(bitwise_or, dtype, ht_unsigned(dtype), HT_UNSIGNED_TYPES(CASE_BITWISE_OR))
HT_BINARY_KERNEL(bitwise_xor, dtype, ht_unsigned(dtype), HT_UNSIGNED_TYPES(CASE_BITWISE_XOR))
HT_BINARY_KERNEL(shift_left, dtype, ht_unsigned(dtype), HT_UNSIGNED_TYPES(CASE_SHIFT_LEFT))
HT_BINARY_KERNEL(shift_right, dtype, dtype, HT_INTEGER_TYPES(CASE_SHIFT_RIGHT))
