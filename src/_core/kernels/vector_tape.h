/* Elementwise float32 operations in registers. A tape is an array of operations that pass an accumulator of eight vectors
 * on; each operation ends with a jump to the next (threaded code: J. R. Bell, CACM 16(6), 1973). Operands and results are
 * rows in memory; a value that only the next operation reads stays in the registers.
 *
 * Cost: one jump per operation and eight vectors, besides the arithmetic. Results are bitwise those of the kernels
 * `unary`, `quantize`, `dequantize` and binary_arithmetic.c, which compute the same expressions.
 */
#ifndef HETERO_VECTOR_TAPE_H
#define HETERO_VECTOR_TAPE_H

#include "unary.h"

/* Codes of operations: HT_VECTOR_* in constants.h, where `acc` is the accumulator and `row` an operand in memory; unary
 * operations have their codes of unary_codes.h. */

#define HT_VECTOR_BLOCK 8 /* vectors of the accumulator: as many as calling conventions pass in registers */

typedef struct ht_vector_op ht_vector_op;
typedef void (*ht_vector_block_fn)(const ht_vector_op *op, int64_t i, vf, vf, vf, vf, vf, vf, vf, vf);
typedef void (*ht_vector_one_fn)(const ht_vector_op *op, int64_t i, int64_t n, vf);

/* One operation. The row is the operand's or result's first element in the current row; a single number if it repeats. */
struct ht_vector_op {
    ht_vector_block_fn block;
    ht_vector_one_fn one;
    union {
        float *row;
        uint8_t *bytes; /* of HT_VECTOR_DEQUANTIZE and HT_VECTOR_QUANTIZE */
    };
    float p0, p1;
    float reciprocal; /* of the scale p0 */
    int is_bytes;
};

/* Whether an operation has a row, and whether that has bytes. */
HT_INLINE int ht_vector_has_bytes(int64_t code) { return code >= HT_VECTOR_DEQUANTIZE && code < HT_VECTOR_REQUANTIZE; }
HT_INLINE int ht_vector_has_row(int64_t code)
{
    return ht_vector_has_bytes(code) || code == HT_VECTOR_LOAD || code == HT_VECTOR_STORE ||
           (code >= HT_VECTOR_BINARY && code < HT_VECTOR_DEQUANTIZE &&
            (code - HT_VECTOR_BINARY) % HT_VECTOR_FORMS != HT_VECTOR_ACC_ACC);
}

/* Fills in everything except the row. Returns HT_ERR_OPERAND for an invalid code. HT_VECTOR_END must end every tape. */
#define ht_vector_op_set HT_KERNEL(vector_op_set)
int ht_vector_op_set(ht_vector_op *op, int64_t code, int repeats, float p0, float p1);

/* Runs a tape over rows of n elements. */
#define ht_vector_run HT_KERNEL(vector_run)
void ht_vector_run(const ht_vector_op *tape, int64_t n);

#endif
