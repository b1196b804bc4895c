/* One product of a gemm or matmul call (gemm.c), and the algorithms that do not use tiles: for few rows (gemv.c), and
 * for types other than float32 (gemm_plain.c). */
#ifndef HETERO_GEMM_PRODUCT_H
#define HETERO_GEMM_PRODUCT_H

#include "batch.h"
#include "gemm_micro.h"

/* y[m][n] for one matrix pair, columns [col0, col1) (col0 a multiple of HT_PANEL). */
typedef struct {
    const float *a;
    int64_t a_row, a_k;
    const float *b;         /* or NULL if `halves` or `parts` is set */
    const float *parts;     /* B packed by pack_parts */
    const uint16_t *halves; /* packed B of float16 or bfloat16 */
    int32_t halves_type;
    int64_t ldb;
    int trans_b, b_packed;
    float *y;
    int64_t m, n, k;
    int64_t rows; /* of the whole product: the algorithm is chosen by it, so that splitting rows changes nothing */
    ht_epilogue epilogue;
    int activation;
    float p0, p1;
    float *scratch;
    void *tiled;          /* memory for products of bfloat16, or NULL: products of float32 */
    const float *next;    /* packed B of which this thread probably reads `next_columns` columns next, to be prefetched */
    int64_t next_columns; /* 0: unknown */
} ht_gemm_product;

/* Columns [col0, col1) for one to three rows of A. B is packed; for `dot`, a row-major B[n][k], and A is row-major; for
 * `rows`, a row-major B[k][n], and A has one row; for `outer`, k is 1, and A has any number of rows. They apply only the clipping of the activation. */
#define ht_gemv_packed HT_SHARED(gemv_packed)
void ht_gemv_packed(const ht_gemm_product *p, int64_t col0, int64_t col1);
#define ht_gemv_dot HT_SHARED(gemv_dot)
void ht_gemv_dot(const ht_gemm_product *p, int64_t col0, int64_t col1);
#define ht_gemv_rows HT_SHARED(gemv_rows)
void ht_gemv_rows(const ht_gemm_product *p, int64_t col0, int64_t col1);
#define ht_gemv_outer HT_SHARED(gemv_outer)
void ht_gemv_outer(const ht_gemm_product *p, int64_t col0, int64_t col1);

/* The whole call for a type other than float32. p: sizes and strides; B is not packed. alpha, beta: as in the call. */
#define ht_multiply_plain HT_SHARED(multiply_plain)
int ht_multiply_plain(const ht_call *call, const ht_gemm_product *p, const ht_batch *matrices);

#endif
