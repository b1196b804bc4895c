/* Transposes of matrices of elements of 1, 2, 4 or 8 bytes. */
#ifndef HETERO_TRANSPOSE_H
#define HETERO_TRANSPOSE_H

#include "kernel.h"

/* out[i * out_step + k * bytes] = x[i * bytes + k * step], elements of `bytes` bytes, for i < rows and k < columns; steps
 * in bytes, of any sign for x. Nothing need be aligned. x and out do not overlap. */
void HT_SHARED(transpose)(int64_t bytes, const char *x, int64_t step, char *out, int64_t out_step, int64_t rows,
                          int64_t columns);

#endif
