/* det: determinants of square matrices, by LU factorization with partial pivoting in float64.
 * Operands: in x[batch][n][n] (float32 or float64); out y[batch]. ints: n. Scratch: 8 * n * n bytes. Cost: n^3 / 3.
 */
#include "elements.h"
#include "vec.h"

static double determinant(double *a, int64_t n)
{
    double product = 1;
    int64_t left = HT_PACE;
    for (int64_t k = 0; k < n; k++) {
        int64_t pivot = k;
        for (int64_t i = k + 1; i < n; i++)
            if (fabs(a[i * n + k]) > fabs(a[pivot * n + k]))
                pivot = i;
        if (a[pivot * n + k] == 0)
            return 0;
        if (pivot != k) {
            for (int64_t j = k; j < n; j++) {
                const double swapped = a[k * n + j];
                a[k * n + j] = a[pivot * n + j];
                a[pivot * n + j] = swapped;
            }
            product = -product;
        }
        product *= a[k * n + k];
        for (int64_t i = k + 1; i < n; i++) {
            if (ht_paced_stop(&left, n - k))
                return 0;
            const double factor = a[i * n + k] / a[k * n + k];
            for (int64_t j = k + 1; j < n; j++)
                a[i * n + j] -= factor * a[k * n + j];
        }
    }
    return product;
}

int HT_KERNEL(det)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 1 || call->num_ints != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0];
    ht_tensor *y = call->out[0];
    const int64_t n = call->ints[0], batch = y->size;
    if (n < 0 || x->dtype != y->dtype || x->size != batch * n * n || call->scratch_bytes < ht_scratch_det(n))
        return HT_ERR_OPERAND;
    double *a = (double *)call->scratch;
    for (int64_t b = 0; b < batch && !ht_stopping(); b++) {
        HT_LONG_FOR (i, n * n)
            a[i] = x->dtype == HT_FLOAT32 ? (double)((const float *)x->data)[b * n * n + i]
                                          : ((const double *)x->data)[b * n * n + i];
        if (x->dtype == HT_FLOAT32)
            ((float *)y->data)[b] = (float)determinant(a, n);
        else if (x->dtype == HT_FLOAT64)
            ((double *)y->data)[b] = determinant(a, n);
        else
            return HT_ERR_DTYPE;
    }
    return HT_OK;
}
