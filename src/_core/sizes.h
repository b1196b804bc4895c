/* Evaluates what a program derives from the sizes of its inputs: dims of tensors, ints of calls, bytes of buffers.
 *
 * hetero._sizes records the steps while a model is planned for sizes that are symbols. Steps that compare check that
 * the plan holds for the sizes at hand. If one fails, or if a number does not fit 64 bits, the plan must not be used
 * for these sizes. */
#ifndef HETERO_SIZES_H
#define HETERO_SIZES_H

#include <stdint.h>

#include "kernels/kernel.h"
#include "kernels/questions.h"

/* Steps. r[i]: the number in register i, an integer unless stated otherwise. Divisions round down, as in Python. */
#define HT_SIZE_STEPS(X)                                                       \
    X(LOAD_DIM)      /* r[out] = dims[b] of tensor a */                        \
    X(LOAD_ELEMENT)  /* r[out] = element b of tensor a */                      \
    X(LOAD_REAL)     /* r[out] = element b of tensor a, a float, as float64 */ \
    X(ADD)           /* r[out] = r[a] + r[b] */                                \
    X(SUB)                                                                     \
    X(MUL)                                                                     \
    X(DIV)                                                                     \
    X(MOD)                                                                     \
    X(REAL)          /* r[out] = r[a] as float64 */                            \
    X(ADD_REAL)      /* of float64 */                                          \
    X(SUB_REAL)                                                                \
    X(MUL_REAL)                                                                \
    X(DIV_REAL)                                                                \
    X(SINGLE)        /* r[out] = r[a], a float64, rounded to float32 */        \
    X(BITS)          /* r[out] = the bits of r[a] as float32 */                \
    X(FLOOR)         /* r[out] = r[a], a float64, rounded down to int64 */     \
    X(ARGUMENT)      /* argument a of the next question = r[b] */              \
    X(ASK)           /* r[out] = the answer to question a of questions.h */    \
    X(IS_LESS)       /* fails unless (r[a] < r[b]) == out */                   \
    X(IS_EQUAL)                                                                \
    X(IS_LESS_REAL)  /* of float64 */                                          \
    X(IS_EQUAL_REAL)                                                           \
    X(STORE_DIM)     /* dims[b] of tensor a = r[out] */                        \
    X(SET_SIZE)      /* size of tensor a = the product of its dims */          \
    X(STORE_ELEMENT) /* element b of tensor a = r[out] */                      \
    X(STORE_INT)     /* int a of the program = r[out] */                       \
    X(STORE_BEGIN)   /* where tensor a begins in its buffer = r[out] bytes */  \
    X(STORE_BYTES)   /* bytes of buffer a = r[out] */                          \
    X(ALLOCATE)      /* memory for tensor a; ends the run of ht_run_sizes */   \
    X(SHARE)         /* tensor a lies in the memory of tensor b */             \
    X(CALL)          /* kernel call a; ends the run of ht_run_sizes */         \
    X(TABLE)         /* Python computes the data of tensor a; ends the run */

#define HT_SIZE_STEP(name) HT_SIZE_##name,
enum { HT_SIZE_STEPS(HT_SIZE_STEP) HT_NUM_SIZE_STEPS };

typedef struct {
    int32_t step, out, a, b;
} ht_size_step;

typedef union {
    int64_t integer;
    double real;
} ht_number;

/* What the steps read and write. */
typedef struct {
    ht_number *registers;
    ht_tensor *tensors;
    int64_t *ints;
    int64_t *begins; /* of each tensor in its buffer, in bytes */
    int64_t *buffer_bytes;
    int64_t (*ask)(int question, const int64_t *arguments); /* ht_ask, which another module links */
} ht_sizes;

enum { HT_SIZES_DONE = -1, HT_SIZES_FAILED = -2 };

/* Runs the steps from `position` on. Returns the position of the step that ended it (ALLOCATE, CALL, TABLE),
 * HT_SIZES_DONE, or HT_SIZES_FAILED. */
int64_t ht_run_sizes(const ht_size_step *steps, int64_t count, int64_t position, const ht_sizes *sizes);

#endif
