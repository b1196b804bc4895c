/* dft: discrete Fourier transforms along an axis of x[outer][size][inner][parts], parts = 1 (real) or 2 (complex).
 *
 * y[o][k][i] = factor * sum over t of x[o][t][i] * exp(-+ 2 pi i k t / length), for k = 0 .. kept - 1; x is cut, or filled
 * up with zeros, to length. Source for powers of two: Cooley and Tukey, 1965; other lengths take the sum as it is.
 * Operands: in x (float32 or float64); out y[outer][kept][inner][2]. ints: outer, size, inner, parts, length, kept (at most
 * length), inverse (the exponent is positive, factor is 1 / length, else 1), real (x is the first half, length / 2 + 1 bins,
 * of the spectrum of a real signal, and y its real part, [outer][kept][inner]). Scratch: 48 * length bytes.
 * Cost: n log n for powers of two, else n^2. In float64 throughout.
 */
#include "elements.h"
#include "vec.h"

typedef struct {
    double re, im;
} complex64;

/* In place, n a power of two; root[k] = exp(-+ 2 pi i k / n). */
static void fast(complex64 *v, const complex64 *root, int64_t n)
{
    for (int64_t i = 1, j = 0; i < n; i++) { /* order by reversed bits */
        int64_t bit = n >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            const complex64 swapped = v[i];
            v[i] = v[j];
            v[j] = swapped;
        }
    }
    for (int64_t half = 1; half < n; half *= 2)
        for (int64_t block = 0; block < n; block += 2 * half)
            for (int64_t k = 0; k < half; k++) {
                const complex64 w = root[k * (n / (2 * half))], a = v[block + k], b = v[block + k + half];
                const complex64 turned = {b.re * w.re - b.im * w.im, b.re * w.im + b.im * w.re};
                v[block + k] = (complex64){a.re + turned.re, a.im + turned.im};
                v[block + k + half] = (complex64){a.re - turned.re, a.im - turned.im};
            }
}

static void direct(const complex64 *v, const complex64 *root, complex64 *result, int64_t n, int64_t kept)
{
    for (int64_t k = 0; k < kept; k++) {
        double re = 0, im = 0;
        for (int64_t t = 0, at = 0; t < n; t++) {
            re += v[t].re * root[at].re - v[t].im * root[at].im;
            im += v[t].re * root[at].im + v[t].im * root[at].re;
            at += k;
            at -= at >= n ? n : 0;
        }
        result[k] = (complex64){re, im};
    }
}

#define DEFINE_LINES(T)                                                                                             \
    static void lines_##T(const ht_call *call)                                                                      \
    {                                                                                                               \
        const int64_t outer = call->ints[0], size = call->ints[1], inner = call->ints[2], parts = call->ints[3];    \
        const int64_t n = call->ints[4], kept = call->ints[5], real = call->ints[7] != 0;                           \
        const int64_t given = ht_min64(size, real ? n / 2 + 1 : n), out_parts = real ? 1 : 2;                       \
        const int inverse = call->ints[6] != 0;                                                                     \
        complex64 *v = (complex64 *)call->scratch, *root = v + n, *result = root + n;                               \
        const double turn = (inverse ? 2 : -2) * 3.14159265358979323846 / (double)n, factor = inverse ? 1.0 / (double)n : 1; \
        for (int64_t k = 0; k < n; k++)                                                                             \
            root[k] = (complex64){cos(turn * (double)k), sin(turn * (double)k)};                                    \
        for (int64_t o = 0; o < outer; o++)                                                                         \
            for (int64_t i = 0; i < inner; i++) {                                                                   \
                const T *x = (const T *)call->in[0]->data + (o * size * inner + i) * parts;                         \
                T *y = (T *)call->out[0]->data + (o * kept * inner + i) * out_parts;                                \
                for (int64_t t = 0; t < n; t++) {                                                                   \
                    const T *from = x + t * inner * parts;                                                          \
                    v[t] = t < given ? (complex64){(double)from[0], parts == 2 ? (double)from[1] : 0}               \
                                     : (complex64){0, 0};                                                           \
                }                                                                                                   \
                for (int64_t t = 1; real && t < given && n - t >= given; t++) /* the other half mirrors it */       \
                    v[n - t] = (complex64){v[t].re, -v[t].im};                                                      \
                const complex64 *found = v;                                                                         \
                if ((n & (n - 1)) == 0) {                                                                           \
                    fast(v, root, n);                                                                               \
                } else {                                                                                            \
                    direct(v, root, result, n, kept);                                                               \
                    found = result;                                                                                 \
                }                                                                                                   \
                for (int64_t k = 0; k < kept; k++) {                                                                \
                    y[out_parts * k * inner] = (T)(found[k].re * factor);                                           \
                    if (!real)                                                                                      \
                        y[2 * k * inner + 1] = (T)(found[k].im * factor);                                           \
                }                                                                                                   \
            }                                                                                                       \
    }
DEFINE_LINES(float)
DEFINE_LINES(double)

int HT_KERNEL(dft)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 1 || call->num_ints != 8)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *y = call->out[0];
    const int64_t outer = call->ints[0], size = call->ints[1], inner = call->ints[2], parts = call->ints[3];
    const int64_t n = call->ints[4], kept = call->ints[5];
    if (outer < 0 || size < 0 || inner < 0 || parts < 1 || parts > 2 || n < 1 || kept < 0 || kept > n ||
        x->size != outer * size * inner * parts || y->size != outer * kept * inner * (call->ints[7] ? 1 : 2) ||
        (call->ints[7] && parts != 2) || x->dtype != y->dtype ||
        call->scratch_bytes < 48 * n)
        return HT_ERR_OPERAND;
    if (y->size == 0)
        return HT_OK;
    if (x->dtype == HT_FLOAT32)
        lines_float(call);
    else if (x->dtype == HT_FLOAT64)
        lines_double(call);
    else
        return HT_ERR_DTYPE;
    return HT_OK;
}
