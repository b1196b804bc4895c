/* grid_sample: interpolated elements of x at the positions in a grid.
 *
 * Operands: in x[n][c][...] (float32 or float64, two or three spatial axes), grid[n][...][rank] (x's dtype; the last
 * axis holds x, y(, z), from -1 to 1 along each axis); out y[n][c][...] with the grid's spatial dims.
 * ints: mode (HT_SAMPLE_*), padding (HT_OUTSIDE_*), align_corners (-1 and 1 are the
 * centers of the outermost elements instead of their edges). Cubic: a = -0.75.
 *
 * Positions and weights of a tile of points are computed once and used for all channels: up to 64 products per output.
 */
#include "elements.h"
#include "vec.h"

#define MAX_TAPS 64 /* taps of a point: 4 along each of three axes, for cubic interpolation */
#define CHANNELS 4  /* whose outputs of four taps are computed together */
#define TILE 128    /* points at a time: their taps take 64 kB at most, 4 kB for bilinear interpolation */

enum { NEAREST = HT_SAMPLE_NEAREST, LINEAR = HT_SAMPLE_LINEAR, CUBIC = HT_SAMPLE_CUBIC };
enum { ZEROS = HT_OUTSIDE_ZEROS, BORDER = HT_OUTSIDE_BORDER, REFLECTION = HT_OUTSIDE_REFLECTION };

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
    /* The element used for position i of an axis; -1 if there is none. */                                           \
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
    /* Elements and weights along one axis for a position in -1 .. 1; returns how many. */                           \
    static int along_##T(T place, int64_t size, int mode, int padding, int aligned, int64_t *at, T *weight)          \
    {                                                                                                                \
        const T low = aligned ? 0 : (T)-0.5, high = aligned ? (T)(size - 1) : (T)size - (T)0.5;                      \
        T v = aligned ? (place + 1) / 2 * (T)(size - 1) : ((place + 1) * (T)size - 1) / 2;                           \
        if (!(v > -1e9 && v < 1e9)) /* infinite or NaN: -1, like a position before the first element */              \
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
    /* Zero if the weight is zero, even if the element is infinite. */                                               \
    HT_INLINE T term_##T(T weight, T value) { return weight == 0 ? 0 : weight * value; }                             \
    /* Some outputs of a channel. */                                                                                 \
    static void sum_##T(const T *HT_RESTRICT from, int32_t (*offset)[TILE], T (*product)[TILE], int taps,            \
                        int64_t count, T *HT_RESTRICT to)                                                            \
    {                                                                                                                \
        for (int64_t point = 0; point < count; point++)                                                              \
            to[point] = term_##T(product[0][point], from[offset[0][point]]);                                         \
        for (int tap = 1; tap < taps; tap++)                                                                         \
            for (int64_t point = 0; point < count; point++)                                                          \
                to[point] += term_##T(product[tap][point], from[offset[tap][point]]);                                \
    }                                                                                                                \
    /* The same with four taps for some channels, which share places and weights. Returns 0 if a result is NaN, for      \
     * example because a weight is zero and the element infinite. */                                                 \
    HT_INLINE int bilinear_##T(const T *HT_RESTRICT from, int64_t plane, int32_t (*offset)[TILE], T (*product)[TILE],\
                               int64_t count, T *HT_RESTRICT to, int64_t points, const int64_t channels)             \
    {                                                                                                                \
        int is_nan = 0;                                                                                              \
        for (int64_t point = 0; point < count; point++) {                                                            \
            const int64_t o0 = offset[0][point], o1 = offset[1][point], o2 = offset[2][point], o3 = offset[3][point];\
            const T p0 = product[0][point], p1 = product[1][point], p2 = product[2][point], p3 = product[3][point];  \
            _Pragma("GCC unroll 4") for (int64_t channel = 0; channel < channels; channel++) {                       \
                const T *at = from + channel * plane;                                                                \
                const T sum = 0 + p0 * at[o0] + p1 * at[o1] + p2 * at[o2] + p3 * at[o3]; /* not -0 */                \
                to[channel * points + point] = sum;                                                                  \
                is_nan |= sum != sum;                                                                                \
            }                                                                                                        \
        }                                                                                                            \
        return !is_nan;                                                                                              \
    }                                                                                                                \
    /* Points [begin, end) of one image: places and weights of a tile of points, then its sums channel by channel. */     \
    static void sample_##T(const ht_call *call, int rank, int64_t plane, int64_t points, int64_t image, int64_t begin,   \
                           int64_t end)                                                                              \
    {                                                                                                                \
        const ht_tensor *x = call->in[0];                                                                            \
        const int64_t c = x->dims[1];                                                                                \
        const int mode = (int)call->ints[0], padding = (int)call->ints[1], aligned = call->ints[2] != 0;             \
        int64_t left = HT_PACE;                                                                                      \
        for (int64_t tile = begin; tile < end && !ht_paced_stop(&left, TILE * MAX_TAPS * (c + 1)); tile += TILE) {   \
            const int64_t count = ht_min64(TILE, end - tile);                                                        \
            const T *grid = (const T *)call->in[1]->data + (image * points + tile) * rank;                           \
            int32_t offset[MAX_TAPS][TILE];                                                                          \
            T product[MAX_TAPS][TILE];                                                                               \
            int taps = 0;                                                                                            \
            for (int64_t point = 0; point < count; point++, grid += rank) {                                          \
                int64_t at[3][4] = {{0}}, dims[3] = {1, 1, 1};                                                       \
                T weight[3][4] = {{1}, {1}, {1}};                                                                    \
                int own[3] = {1, 1, 1};                                                                              \
                for (int i = 0; i < rank; i++) { /* the grid names the last axis first */                            \
                    dims[2 - i] = x->dims[x->ndim - 1 - i];                                                          \
                    own[2 - i] = along_##T(grid[i], dims[2 - i], mode, padding, aligned, at[2 - i], weight[2 - i]);  \
                }                                                                                                    \
                taps = 0;                                                                                            \
                for (int i = 0; i < own[0]; i++)                                                                     \
                    for (int j = 0; j < own[1]; j++)                                                                 \
                        for (int k = 0; k < own[2]; k++, taps++) {                                                   \
                            const int there = at[0][i] >= 0 && at[1][j] >= 0 && at[2][k] >= 0;                       \
                            offset[taps][point] =                                                                    \
                                there ? (int32_t)((at[0][i] * dims[1] + at[1][j]) * dims[2] + at[2][k]) : 0;         \
                            product[taps][point] = there ? weight[0][i] * weight[1][j] * weight[2][k] : 0;           \
                        }                                                                                            \
            }                                                                                                        \
            for (int64_t channel = 0, some; channel < c; channel += some) {                                          \
                const T *from = (const T *)x->data + (image * c + channel) * plane;                                  \
                T *to = (T *)call->out[0]->data + (image * c + channel) * points + tile;                             \
                some = taps == 4 ? ht_min64(CHANNELS, c - channel) : 1;                                              \
                if (taps == 4 && (some == CHANNELS                                                                   \
                                      ? bilinear_##T(from, plane, offset, product, count, to, points, CHANNELS)      \
                                      : bilinear_##T(from, plane, offset, product, count, to, points, some)))        \
                    continue;                                                                                        \
                for (int64_t end_of = some; end_of > 0; end_of--, from += plane, to += points)                       \
                    sum_##T(from, offset, product, taps, count, to);                                                 \
            }                                                                                                        \
        }                                                                                                            \
    }
DEFINE_SAMPLE(float)
DEFINE_SAMPLE(double)

typedef struct {
    const ht_call *call;
    int64_t plane, points, parts;
} job;

static void sample_part(void *context, int64_t part, int thread)
{
    const job *j = (const job *)context;
    const int rank = j->call->in[0]->ndim - 2;
    const int64_t begin = ht_part_begin(j->points, j->parts, part), end = ht_part_begin(j->points, j->parts, part + 1);
    (void)thread;
    for (int64_t image = 0; image < j->call->in[0]->dims[0]; image++)
        if (j->call->in[0]->dtype == HT_FLOAT32)
            sample_float(j->call, rank, j->plane, j->points, image, begin, end);
        else
            sample_double(j->call, rank, j->plane, j->points, image, begin, end);
}

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
    if (plane == 0 || plane > INT32_MAX)
        return HT_ERR_OPERAND;
    if (x->dtype != HT_FLOAT32 && x->dtype != HT_FLOAT64)
        return HT_ERR_DTYPE;
    job j = {call, plane, points, ht_parts(call, points, 8 * (double)y->size)};
    ht_parallel(call->team, j.parts, sample_part, &j);
    return HT_OK;
}
