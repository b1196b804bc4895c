/* Tables for Resize along one axis: which elements of the input each element of the result reads.
 *
 *   resize_nearest   out start[length] (int32): the element that is picked.  ints: size, scale, coordinates, rounding.
 *   resize_filter    out start[length] (int32), weight[min(taps, size)][length] (float32 or float64): the window and the
 *                    weights of a filter around each position. Weights of positions beyond the ends are added to those
 *                    of the ends.  ints: size, scale, coordinates, cubic (or linear), antialias, exclude_outside,
 *                    taps.
 *   resize_outside   out bool[length]: whether the position lies outside the axis.  ints: size, scale, coordinates, precise.
 *
 * No inputs. floats: start and end of the region, then the cubic coefficient (resize_filter). `scale`: the bits of a
 * float32, because ints may follow from sizes (_sizes.pyx); 0 for length / size. `coordinates` and `rounding` are codes of constants.h. `precise`: positions in float64, as in resize_filter; otherwise
 * in float32, because rounding decides which element is picked, and onnxruntime computes so. With antialias, a scale
 * below 1 widens the filter by its reciprocal; `taps` must then be 2 * ceil(support). With exclude_outside, the weights
 * of positions beyond the ends are 0. Cost: a division per element, and a filter's value per tap.
 */
#include "elements.h"
#include "vec.h"

#include <math.h>

typedef struct {
    int64_t size, length;
    double scale, start, end, cubic;
} axis;

#define DEFINE_PLACE(T)                                                                                             \
    /* The position of element j of the result. */                                                                   \
    static inline T place_##T(const axis *a, int64_t coordinates, int64_t j)                                         \
    {                                                                                                                \
        const T y = (T)j, s = (T)a->scale, n = (T)a->size, half = (T)0.5, one = 1;                                   \
        switch (coordinates) {                                                                                       \
        case HT_RESIZE_ALIGN_CORNERS: {                                                                              \
            /* If the scale is the ratio of the lengths up to rounding, the length makes corners whole numbers. */   \
            const int is_ratio = fabs(a->scale * (double)a->size - (double)a->length) <= 1e-6 * (double)a->length;   \
            const T resized = is_ratio ? (T)a->length : s * n;                                                       \
            return resized != one ? y * (n - one) / (resized - one) : 0;                                             \
        }                                                                                                            \
        case HT_RESIZE_ASYMMETRIC: return y / s;                                                                     \
        case HT_RESIZE_TF_HALF_PIXEL: return (y + half) / s;                                                         \
        case HT_RESIZE_TF_CROP:                                                                                      \
            if (a->length > 1)                                                                                       \
                return (T)a->start * (n - one) + y * ((T)a->end - (T)a->start) * (n - one) / (T)(a->length - 1);     \
            return half * ((T)a->start + (T)a->end) * (n - one);                                                     \
        case HT_RESIZE_HALF_PIXEL_SYMMETRIC: {                                                                       \
            /* Rounded once, as in onnxruntime, so positions that are whole up to rounding fall to the same side. */ \
            const T centered = n / 2 * (one - (T)a->length / (s * n));                                               \
            return (T)((double)centered + (double)(y + half) / (double)s - 0.5);                                     \
        }                                                                                                            \
        case HT_RESIZE_PYTORCH_HALF_PIXEL:                                                                           \
            if (a->length <= 1)                                                                                      \
                return 0;                                                                                            \
            return (y + half) / s - half;                                                                            \
        default: return (y + half) / s - half;                                                                       \
        }                                                                                                            \
    }
DEFINE_PLACE(float)
DEFINE_PLACE(double)

/* Reads the ints and floats that all three have; 0 if they or the first output do not fit. */
static int describe(axis *a, const ht_call *call, int num_out, int num_ints, int num_floats)
{
    if (call->num_in != 0 || call->num_out != num_out || call->num_ints != num_ints || call->num_floats != num_floats)
        return 0;
    a->size = call->ints[0];
    a->length = call->out[0]->size;
    a->start = call->floats[0];
    a->end = call->floats[1];
    a->cubic = num_floats > 2 ? call->floats[2] : 0;
    const uint32_t bits = (uint32_t)call->ints[1];
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    a->scale = bits ? scale : (double)a->length / (double)a->size;
    return a->length == 0 || (a->scale > 0 && a->size > 0 && a->size <= INT32_MAX && a->length <= INT32_MAX);
}

static float rounded(float place, int64_t rounding)
{
    switch (rounding) {
    case HT_RESIZE_PREFER_FLOOR: return ceilf(place - 0.5f);
    case HT_RESIZE_PREFER_CEIL: return floorf(place + 0.5f);
    case HT_RESIZE_FLOOR: return floorf(place);
    default: return ceilf(place);
    }
}

int HT_KERNEL(resize_nearest)(const ht_call *call)
{
    axis a;
    if (!describe(&a, call, 1, 4, 2) || call->out[0]->dtype != HT_INT32)
        return HT_ERR_OPERAND;
    int32_t *start = (int32_t *)call->out[0]->data;
    const int64_t coordinates = call->ints[2], rounding = call->ints[3];
    HT_LONG_FOR (j, a.length) {
        const double place = rounded(place_float(&a, coordinates, j), rounding);
        start[j] = place > 0 ? (int32_t)fmin(place, (double)(a.size - 1)) : 0;
    }
    return HT_OK;
}

int HT_KERNEL(resize_outside)(const ht_call *call)
{
    axis a;
    if (!describe(&a, call, 1, 4, 2) || call->out[0]->dtype != HT_BOOL)
        return HT_ERR_OPERAND;
    uint8_t *outside = (uint8_t *)call->out[0]->data;
    HT_LONG_FOR (j, a.length) {
        const double place = call->ints[3] ? place_double(&a, call->ints[2], j) : place_float(&a, call->ints[2], j);
        outside[j] = place < 0 || place > (double)(a.size - 1);
    }
    return HT_OK;
}

/* The filter's value at a distance from its center. */
static double filter(const axis *a, int cubic, double d)
{
    if (!cubic)
        return d < 1 ? 1 - d : 0;
    if (d <= 1)
        return ((a->cubic + 2) * d - (a->cubic + 3)) * d * d + 1;
    return d < 2 ? ((a->cubic * d - 5 * a->cubic) * d + 8 * a->cubic) * d - 4 * a->cubic : 0;
}

static void set_weight(ht_tensor *weight, int64_t at, double w)
{
    if (weight->dtype == HT_FLOAT32)
        ((float *)weight->data)[at] = (float)w;
    else
        ((double *)weight->data)[at] = w;
}

int HT_KERNEL(resize_filter)(const ht_call *call)
{
    axis a;
    if (!describe(&a, call, 2, 7, 3) || call->out[0]->dtype != HT_INT32)
        return HT_ERR_OPERAND;
    ht_tensor *weight = call->out[1];
    const int64_t coordinates = call->ints[2], taps = call->ints[6], window = ht_min64(taps, a.size);
    const int cubic = call->ints[3] != 0, exclude = call->ints[5] != 0;
    const double shrink = call->ints[4] && a.scale < 1 ? a.scale : 1, support = (cubic ? 2 : 1) / shrink;
    if (weight->dtype != HT_FLOAT32 && weight->dtype != HT_FLOAT64)
        return HT_ERR_DTYPE;
    if (a.length == 0)
        return HT_OK;
    if (taps > INT32_MAX || (double)taps != 2 * ceil(support) || weight->size != window * a.length)
        return HT_ERR_OPERAND;
    int32_t *start = (int32_t *)call->out[0]->data;
    int64_t left = HT_PACE;
    for (int64_t j = 0; j < a.length; j++) {
        if (ht_paced_stop(&left, 2 * taps))
            return HT_OK;
        const double place = fmin(fmax(place_double(&a, coordinates, j), -support - 1), (double)a.size + support);
        const int64_t first = (int64_t)floor(place) - (taps / 2 - 1);
        const int64_t begin = ht_min64(ht_max64(first, 0), a.size - window);
        double total = 0, folded = 0;
        for (int64_t t = 0; t < taps; t++)
            if (!exclude || (first + t >= 0 && first + t < a.size))
                total += filter(&a, cubic, fabs((double)(first + t) - place) * shrink);
        int64_t at = 0; /* where `folded` belongs */
        for (int64_t t = 0; t < taps; t++) {
            const int64_t number = first + t, to = ht_min64(ht_max64(number, 0), a.size - 1) - begin;
            const int is_outside = number < 0 || number >= a.size;
            double w = exclude && is_outside ? 0 : filter(&a, cubic, fabs((double)number - place) * shrink);
            w /= total == 0 ? 1 : total;
            for (; at < to; at++, folded = 0)
                set_weight(weight, at * a.length + j, folded);
            folded += w;
        }
        for (; at < window; at++, folded = 0)
            set_weight(weight, at * a.length + j, folded);
        start[j] = (int32_t)begin;
    }
    return HT_OK;
}
