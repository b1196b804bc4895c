/* Softmax of rows, for the kernels that have their own rows. */
#ifndef HETERO_SOFTMAX_H
#define HETERO_SOFTMAX_H

#include "vec.h"

/* y[rows][n] = softmax of each row of x; y may be x. */
#define ht_softmax_rows HT_KERNEL(softmax_rows)
void ht_softmax_rows(const float *x, float *y, int64_t rows, int64_t n);

#endif
