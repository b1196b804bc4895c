/* Products of types other than float32, by a plain loop: see gemm_product.h. Integers wrap. */
#include "gemm_product.h"

/* The plain loop: rows of y accumulate rows of B. Integers wrap, because their sums are unsigned. */
#define PLAIN(name, type, factor)                                                                                             \
    static void name(const ht_gemm_product *p, const void *a_, const void *b_, const void *bias_, const void *addend_, \
                     void *y_, double alpha_, double beta_)                                                          \
    {                                                                                                                 \
        const type alpha = (type)(factor)alpha_, beta = (type)(factor)beta_;                                          \
        const type *a = a_, *b = b_, *bias = bias_, *addend = addend_;                                                \
        type *y = y_;                                                                                                 \
        int64_t left = HT_PACE;                                                                                       \
        for (int64_t i = 0; i < p->m; i++, y += p->n) {                                                               \
            for (int64_t j = 0; j < p->n; j++)                                                                        \
                y[j] = 0;                                                                                             \
            for (int64_t k = 0; k < p->k; k++) {                                                                      \
                if (ht_paced_stop(&left, p->n))                                                                       \
                    return;                                                                                           \
                const type x = a[i * p->a_row + k * p->a_k];                                                          \
                if (p->trans_b)                                                                                       \
                    for (int64_t j = 0; j < p->n; j++)                                                                \
                        y[j] += x * b[j * p->ldb + k];                                                                \
                else                                                                                                  \
                    for (int64_t j = 0; j < p->n; j++)                                                                \
                        y[j] += x * b[k * p->ldb + j];                                                                \
            }                                                                                                         \
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
PLAIN(plain_f64, double, double)
PLAIN(plain_u32, uint32_t, int64_t)
PLAIN(plain_u64, uint64_t, int64_t)

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
