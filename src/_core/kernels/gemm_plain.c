/* Products of types other than float32, by a plain loop: see gemm_product.h. Integers wrap. */
#include "gemm_product.h"

/* Rows and columns of a block of B: 32 kB of float64, which stays in the L1 cache. */
enum { BLOCK = 64 };

#define SUM_u32(sum, x, y) ((sum) + (x) * (y))
#define SUM_u64 SUM_u32
#if defined(__FMA__) || defined(__aarch64__)
#define SUM_f64(sum, x, y) __builtin_fma(x, y, sum)
#else
#define SUM_f64 SUM_u32
#endif

/* The plain loops: for each block of B, rows of y accumulate rows of B, several at a time, in ascending order. For COPIED rows
 * of A or more, a block is copied first. Integers wrap, because their sums are unsigned. */
enum { TERMS = 8, COPIED = 4 };
#define PLAIN(suffix, type, factor)                                                                                   \
    /* y[j] += x * b[j], for `terms` elements of a row of A and rows of B; j_step: from one column of B to the next. */ \
    HT_INLINE void terms_##suffix(const type *HT_RESTRICT a, int64_t a_k, const type *HT_RESTRICT b, int64_t row,      \
                                  int64_t j_step, type *HT_RESTRICT y, int64_t n, const int terms)                    \
    {                                                                                                                 \
        type x[TERMS];                                                                                                \
        _Pragma("GCC unroll 8") for (int u = 0; u < terms; u++)                                                       \
            x[u] = a[u * a_k];                                                                                        \
        for (int64_t j = 0; j < n; j++) {                                                                             \
            type sum = y[j];                                                                                          \
            _Pragma("GCC unroll 8") for (int u = 0; u < terms; u++)                                                   \
                sum = SUM_##suffix(sum, x[u], b[j * j_step + u * row]);                                               \
            y[j] = sum;                                                                                               \
        }                                                                                                             \
    }                                                                                                                 \
    HT_INLINE void rows_##suffix(const ht_gemm_product *p, const type *a, const type *b, int64_t row, int64_t j_step,  \
                                 int64_t k_count, int64_t n, type *y)                                                 \
    {                                                                                                                 \
        for (int64_t i = 0; i < p->m; i++, a += p->a_row, y += p->n) {                                                \
            int64_t k = 0;                                                                                            \
            for (; k + TERMS <= k_count; k += TERMS)                                                                  \
                terms_##suffix(a + k * p->a_k, p->a_k, b + k * row, row, j_step, y, n, TERMS);                        \
            for (; k < k_count; k++)                                                                                  \
                terms_##suffix(a + k * p->a_k, p->a_k, b + k * row, row, j_step, y, n, 1);                            \
        }                                                                                                             \
    }                                                                                                                 \
    /* Adds the first k_count terms of the sums of n columns of y. */                                                 \
    static void block_##suffix(const ht_gemm_product *p, const type *a, const type *b, int64_t k_count, int64_t n, type *y) \
    {                                                                                                                 \
        const int64_t row = p->trans_b ? 1 : p->ldb, j_step = p->trans_b ? p->ldb : 1;                                \
        if (p->m >= COPIED) {                                                                                         \
            type copy[BLOCK * BLOCK];                                                                                 \
            for (int64_t j = 0; j < (p->trans_b ? n : 0); j++)                                                        \
                for (int64_t k = 0; k < k_count; k++)                                                                 \
                    copy[k * BLOCK + j] = b[j * j_step + k];                                                          \
            for (int64_t k = 0; k < (p->trans_b ? 0 : k_count); k++)                                                  \
                for (int64_t j = 0; j < n; j++)                                                                       \
                    copy[k * BLOCK + j] = b[k * row + j];                                                             \
            rows_##suffix(p, a, copy, BLOCK, 1, k_count, n, y);                                                       \
        } else if (p->trans_b) {                                                                                      \
            rows_##suffix(p, a, b, 1, j_step, k_count, n, y);                                                         \
        } else {                                                                                                      \
            rows_##suffix(p, a, b, row, 1, k_count, n, y);                                                            \
        }                                                                                                             \
    }                                                                                                                 \
    static void plain_##suffix(const ht_gemm_product *p, const void *a_, const void *b_, const void *bias_,           \
                               const void *addend_, void *y_, double alpha_, double beta_)                            \
    {                                                                                                                 \
        const type alpha = (type)(factor)alpha_, beta = (type)(factor)beta_;                                          \
        const type *a = a_, *b = b_, *bias = bias_, *addend = addend_;                                                \
        type *y = y_;                                                                                                 \
        int64_t left = HT_PACE;                                                                                       \
        HT_LONG_FOR (i, p->m * p->n)                                                                                  \
            y[i] = 0;                                                                                                 \
        for (int64_t j = 0; j < p->n; j += BLOCK)                                                                     \
            for (int64_t k = 0; k < p->k; k += BLOCK) {                                                               \
                const int64_t n = ht_min64(BLOCK, p->n - j), k_count = ht_min64(BLOCK, p->k - k);                     \
                if (ht_paced_stop(&left, p->m * n * k_count))                                                         \
                    return;                                                                                           \
                block_##suffix(p, a + k * p->a_k, b + (p->trans_b ? j * p->ldb + k : k * p->ldb + j), k_count, n, y + j); \
            }                                                                                                         \
        for (int64_t i = 0; i < p->m; i++, y += p->n) {                                                               \
            if (ht_paced_stop(&left, p->n))                                                                           \
                return;                                                                                               \
            if (alpha != 1)                                                                                         \
                for (int64_t j = 0; j < p->n; j++)                                                                    \
                    y[j] *= alpha;                                                                \
            if (bias)                                                                                                 \
                for (int64_t j = 0; j < p->n; j++)                                                                    \
                    y[j] += beta * bias[i * p->epilogue.bias_row + j * p->epilogue.bias_col];                   \
            if (addend)                                                                                               \
                for (int64_t j = 0; j < p->n; j++)                                                                    \
                    y[j] += addend[i * p->n + j];                                                                     \
        }                                                                                                             \
    }
PLAIN(f64, double, double)
PLAIN(u32, uint32_t, int64_t)
PLAIN(u64, uint64_t, int64_t)

int ht_multiply_plain(const ht_call *call, const ht_gemm_product *p, const ht_batch *matrices)
{
    const ht_tensor *a = call->in[0], *b = call->in[1], *y = call->out[0];
    const ht_tensor *bias = call->num_in > 2 ? call->in[2] : NULL, *addend = call->num_in > 3 ? call->in[3] : NULL;
    const double alpha = call->floats[0], beta = call->floats[1];
    const int64_t batch = ht_batch_size(matrices);
    for (int64_t i = 0; i < batch; i++) {
        const int64_t y_at = i * p->m * p->n, a_at = ht_batch_offset(matrices, matrices->a_strides, i);
        const int64_t b_at = ht_batch_offset(matrices, matrices->b_strides, i);
        switch (y->dtype) {
#define CASE(code, type, plain)                                                                                     \
        case code:                                                                                                    \
            plain(p, (const type *)a->data + a_at, (const type *)b->data + b_at, bias && beta != 0 ? bias->data : NULL, \
                  addend ? (const type *)addend->data + y_at : NULL, (type *)y->data + y_at, alpha, beta);            \
            break;
        CASE(HT_FLOAT64, double, plain_f64)
        CASE(HT_INT32, uint32_t, plain_u32)
        CASE(HT_UINT32, uint32_t, plain_u32)
        CASE(HT_INT64, uint64_t, plain_u64)
        CASE(HT_UINT64, uint64_t, plain_u64)
        default:
            return HT_ERR_DTYPE;
        }
    }
    return HT_OK;
}
