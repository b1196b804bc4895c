/* grid_sample: elements of x at places that a grid gives, interpolated.
 *
 * Operands: in x[n][c][...] (float32 or float64, two or three spatial axes), grid[n][...][rank] (x's dtype; the last
 * axis gives x, y(, z), from -1 to 1 over an axis); out y[n][c][...] with the grid's spatial dims.
 * ints: mode (0 nearest, 1 linear, 2 cubic), padding (0 zeros, 1 the border's, 2 reflected), align_corners (-1 and 1 are
 * the centres of the outermost elements, not their edges). Cubic: a = -0.75.
 *
 * Places and weights of a point are found once, then used for all channels: up to 64 products per output.
 */
#include "elements.h"
#include "vec.h"

#define MAX_TAPS 64 /* cubic over three axes */

enum { NEAREST = 0, LINEAR = 1, CUBIC = 2 };
enum { ZEROS = 0, BORDER = 1, REFLECTION = 2 };

#define DEFINE_SAMPLE(T)                                                                                             \
    static T reflect_##T(T v, T low, T high)                                                                         \
    {                                                                                                                \
        const T range = high - low;                                                                                  \
        if (v >= low && v <= high)                                                                                   \
            return v;                                                                                                \
        if (range <= 0)                                                                                              \
            return low;                                                                                              \
        const T beyond = v < low ? low - v : v - high;                                                               \
        const int64_t times = (int64_t)(beyond / range);                                                             \
        const T rest = beyond - (T)times * range;                                                                    \
        return (v < low) == (times % 2 == 0) ? low + rest : high - rest;                                             \
    }                                                                                                                \
    /* The element that stands for place i of an axis; -1 where there is none. */                                    \
    static int64_t element_##T(int64_t i, int64_t size, int padding, T low, T high)                                  \
    {                                                                                                                \
        if (i >= 0 && i < size)                                                                                      \
            return i;                                                                                                \
        if (padding == ZEROS)                                                                                        \
            return -1;                                                                                               \
        if (padding == REFLECTION)                                                                                   \
            i = (int64_t)reflect_##T((T)i, low, high);                                                               \
        return ht_max64(0, ht_min64(size - 1, i));                                                                   \
    }                                                                                                                \
    /* Elements and weights along one axis for a place in -1 .. 1; returns how many. */                              \
    static int along_##T(T place, int64_t size, int mode, int padding, int aligned, int64_t *at, T *weight)          \
    {                                                                                                                \
        const T low = aligned ? 0 : (T)-0.5, high = aligned ? (T)(size - 1) : (T)size - (T)0.5;                      \
        T v = aligned ? (place + 1) / 2 * (T)(size - 1) : ((place + 1) * (T)size - 1) / 2;                           \
        if (!(v > -1e9 && v < 1e9)) /* infinite, or no number: -1, as a place before the first element */            \
            v = v > 0 ? (T)1e9 : v < 0 ? (T)-1e9 : (T)-1;                                                            \
        if (mode == NEAREST)                                                                                         \
            v = (T)nearbyint((double)v);                                                                             \
        if (mode != CUBIC && (v < low || v > high)) {                                                                \
            if (padding == BORDER)                                                                                   \
                v = v < 0 ? 0 : v > (T)(size - 1) ? (T)(size - 1) : v;                                               \
            else if (padding == REFLECTION)                                                                          \
                v = reflect_##T(v, low, high);                                                                       \
        }                                                                                                            \
        if (mode == NEAREST) {                                                                                       \
            at[0] = element_##T((int64_t)v, size, padding, low, high);                                               \
            weight[0] = 1;                                                                                           \
            return 1;                                                                                                \
        }                                                                                                            \
        const T below = (T)floor((double)v), t = v - below;                                                          \
        const int64_t first = (int64_t)below - (mode == CUBIC);                                                      \
        const int taps = mode == CUBIC ? 4 : 2;                                                                      \
        if (mode == LINEAR) {                                                                                        \
            weight[0] = 1 - t;                                                                                       \
            weight[1] = t;                                                                                           \
        } else {                                                                                                     \
            const T a = (T)-0.75, s = 1 - t, u = t + 1, q = 2 - t;                                                   \
            weight[0] = ((a * u - 5 * a) * u + 8 * a) * u - 4 * a;                                                   \
            weight[1] = ((a + 2) * t - (a + 3)) * t * t + 1;                                                         \
            weight[2] = ((a + 2) * s - (a + 3)) * s * s + 1;                                                         \
            weight[3] = ((a * q - 5 * a) * q + 8 * a) * q - 4 * a;                                                   \
        }                                                                                                            \
        for (int i = 0; i < taps; i++)                                                                               \
            at[i] = element_##T(first + i, size, padding, low, high);                                                \
        return taps;                                                                                                 \
    }                                                                                                                \
    static void sample_##T(const ht_call *call, int rank, int64_t plane, int64_t points)                             \
    {                                                                                                                \
        const ht_tensor *x = call->in[0];                                                                            \
        const int64_t n = x->dims[0], c = x->dims[1];                                                                \
        const int mode = (int)call->ints[0], padding = (int)call->ints[1], aligned = call->ints[2] != 0;             \
        const T *grid = (const T *)call->in[1]->data;                                                                \
        for (int64_t image = 0; image < n; image++)                                                                  \
            for (int64_t point = 0; point < points; point++, grid += rank) {                                         \
                int64_t at[3][4] = {{0}}, offset[MAX_TAPS];                                                          \
                T weight[3][4] = {{1}, {1}, {1}}, product[MAX_TAPS];                                                 \
                int taps[3] = {1, 1, 1}, count = 0;                                                                  \
                int64_t dims[3] = {1, 1, 1};                                                                         \
                for (int i = 0; i < rank; i++) { /* the grid names the last axis first */                            \
                    dims[2 - i] = x->dims[x->ndim - 1 - i];                                                          \
                    taps[2 - i] = along_##T(grid[i], dims[2 - i], mode, padding, aligned, at[2 - i], weight[2 - i]); \
                }                                                                                                    \
                for (int i = 0; i < taps[0]; i++)                                                                    \
                    for (int j = 0; j < taps[1]; j++)                                                                \
                        for (int k = 0; k < taps[2]; k++)                                                            \
                            if (at[0][i] >= 0 && at[1][j] >= 0 && at[2][k] >= 0) {                                   \
                                offset[count] = (at[0][i] * dims[1] + at[1][j]) * dims[2] + at[2][k];                \
                                product[count++] = weight[0][i] * weight[1][j] * weight[2][k];                       \
                            }                                                                                        \
                const T *from = (const T *)x->data + image * c * plane;                                              \
                T *to = (T *)call->out[0]->data + image * c * points + point;                                        \
                for (int64_t channel = 0; channel < c; channel++, from += plane, to += points) {                     \
                    T sum = 0;                                                                                       \
                    for (int tap = 0; tap < count; tap++)                                                            \
                        sum += product[tap] * from[offset[tap]];                                                     \
                    *to = sum;                                                                                       \
                }                                                                                                    \
            }                                                                                                        \
    }
DEFINE_SAMPLE(float)
DEFINE_SAMPLE(double)

int HT_KERNEL(grid_sample)(const ht_call *call)
{
    if (call->num_in != 2 || call->num_out != 1 || call->num_ints != 3)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *grid = call->in[1], *y = call->out[0];
    const int rank = x->ndim - 2;
    if (rank < 2 || rank > 3 || grid->ndim != x->ndim || y->ndim != x->ndim || grid->dims[rank + 1] != rank ||
        grid->dims[0] != x->dims[0] || y->dims[0] != x->dims[0] || y->dims[1] != x->dims[1] || grid->dtype != x->dtype ||
        y->dtype != x->dtype)
        return HT_ERR_OPERAND;
    for (int i = 0; i < rank; i++)
        if (y->dims[2 + i] != grid->dims[1 + i])
            return HT_ERR_OPERAND;
    const int64_t plane = ht_product(x->dims, 2, x->ndim), points = ht_product(y->dims, 2, y->ndim);
    if (y->size == 0)
        return HT_OK;
    if (plane == 0)
        return HT_ERR_OPERAND;
    if (x->dtype == HT_FLOAT32)
        sample_float(call, rank, plane, points);
    else if (x->dtype == HT_FLOAT64)
        sample_double(call, rank, plane, points);
    else
        return HT_ERR_DTYPE;
    return HT_OK;
}
