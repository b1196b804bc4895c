/* roi_align: averages (or maxima) of image regions over a grid of bins, from bilinear samples. Source: He et al., Mask
 * R-CNN, 2017, as specified by ONNX.
 *
 * Operands: in x[n][c][h][w] (float32 or float64), rois[r][4] (x1, y1, x2, y2; x's dtype), images[r] (int64: image
 * index); out y[r][c][bins_h][bins_w]. ints: samples per bin and axis (0: one per element of the bin, rounded up),
 * largest (maximum instead of average), half_pixel (regions are shifted by half an element, and may be smaller than
 * one). floats: scale from the regions' units to elements.
 *
 * The maximum is over the four weighted neighbors of all samples, as in ONNX's definition. An image outside x gives
 * HT_ERR_INDEX; a region that contains NaN, or takes more than 2^24 samples per bin, gives HT_ERR_OPERAND.
 */
#include "elements.h"
#include "vec.h"

#define MAX_SAMPLES (1 << 24) /* samples of one bin, at most: bounds the time that a region can take */

/* The four neighbors of a sample and their weights; positions outside have weight 0. */
typedef struct {
    int64_t at[4];
    double weight[4];
} sample;

static sample sample_at(double y, double x, int64_t height, int64_t width)
{
    sample s = {{0, 0, 0, 0}, {0, 0, 0, 0}};
    if (!(y >= -1.0 && y <= (double)height && x >= -1.0 && x <= (double)width))
        return s;
    y = y < 0 ? 0 : y;
    x = x < 0 ? 0 : x;
    int64_t y0 = (int64_t)y, x0 = (int64_t)x, y1 = y0 + 1, x1 = x0 + 1;
    if (y0 >= height - 1) {
        y0 = y1 = height - 1;
        y = (double)y0;
    }
    if (x0 >= width - 1) {
        x0 = x1 = width - 1;
        x = (double)x0;
    }
    const double dy = y - (double)y0, dx = x - (double)x0;
    const int64_t at[4] = {y0 * width + x0, y0 * width + x1, y1 * width + x0, y1 * width + x1};
    const double weight[4] = {(1 - dy) * (1 - dx), (1 - dy) * dx, dy * (1 - dx), dy * dx};
    memcpy(s.at, at, sizeof at);
    memcpy(s.weight, weight, sizeof weight);
    return s;
}

#define DEFINE_BIN(T)                                                                                                \
    /* One bin of all channels. */                                                                                   \
    static void bin_##T(const T *x, int64_t c, int64_t height, int64_t width, double y0, double x0, double step_y,   \
                        double step_x, int64_t rows, int64_t columns, int largest, double *sums, T *to, int64_t bins) \
    {                                                                                                                \
        const int64_t plane = height * width;                                                                        \
        for (int64_t channel = 0; channel < c; channel++)                                                            \
            sums[channel] = 0;                                                                                       \
        for (int64_t row = 0; row < rows; row++)                                                                     \
            for (int64_t column = 0; column < columns; column++) {                                                   \
                const sample s = sample_at(y0 + ((double)row + 0.5) * step_y, x0 + ((double)column + 0.5) * step_x,  \
                                           height, width);                                                           \
                const T *from = x;                                                                                   \
                for (int64_t channel = 0; channel < c; channel++, from += plane) {                                   \
                    double v[4];                                                                                     \
                    for (int i = 0; i < 4; i++)                                                                      \
                        v[i] = s.weight[i] * (double)from[s.at[i]];                                                  \
                    if (!largest) {                                                                                  \
                        sums[channel] += v[0] + v[1] + v[2] + v[3];                                                  \
                        continue;                                                                                    \
                    }                                                                                                \
                    double top = v[0];                                                                               \
                    for (int i = 1; i < 4; i++)                                                                      \
                        top = v[i] > top ? v[i] : top;                                                               \
                    sums[channel] = (row == 0 && column == 0) || top > sums[channel] ? top : sums[channel];          \
                }                                                                                                    \
            }                                                                                                        \
        const double divisor = largest || rows * columns == 0 ? 1.0 : (double)(rows * columns);                      \
        for (int64_t channel = 0; channel < c; channel++, to += bins)                                                \
            *to = (T)(sums[channel] / divisor);                                                                      \
    }                                                                                                                \
    static int regions_##T(const ht_call *call)                                                                      \
    {                                                                                                                \
        const ht_tensor *x = call->in[0], *y = call->out[0];                                                         \
        const T *rois = (const T *)call->in[1]->data;                                                                \
        const int64_t *images = (const int64_t *)call->in[2]->data;                                                  \
        const int64_t c = x->dims[1], height = x->dims[2], width = x->dims[3];                                       \
        const int64_t bins_h = y->dims[2], bins_w = y->dims[3], fixed = call->ints[0];                               \
        const int largest = call->ints[1] != 0, half_pixel = call->ints[2] != 0;                                     \
        const double scale = call->floats[0], shift = half_pixel ? 0.5 : 0.0;                                        \
        int64_t left = HT_PACE;                                                                                      \
        for (int64_t r = 0; r < y->dims[0]; r++, rois += 4) {                                                        \
            if (images[r] < 0 || images[r] >= x->dims[0])                                                            \
                return HT_ERR_INDEX;                                                                                 \
            const double x0 = (double)rois[0] * scale - shift, y0 = (double)rois[1] * scale - shift;                 \
            double size_x = (double)rois[2] * scale - shift - x0, size_y = (double)rois[3] * scale - shift - y0;     \
            if (!half_pixel) {                                                                                       \
                size_x = size_x < 1 ? 1 : size_x;                                                                    \
                size_y = size_y < 1 ? 1 : size_y;                                                                    \
            }                                                                                                        \
            const double bin_x = size_x / (double)bins_w, bin_y = size_y / (double)bins_h;                           \
            if (!(fabs(x0) < 1e15 && fabs(y0) < 1e15 && fabs(bin_x) < 1e9 && fabs(bin_y) < 1e9))                     \
                return HT_ERR_OPERAND;                                                                               \
            const int64_t columns = fixed > 0 ? fixed : ht_max64(0, (int64_t)ceil(bin_x));                           \
            const int64_t rows = fixed > 0 ? fixed : ht_max64(0, (int64_t)ceil(bin_y));                              \
            if (rows > MAX_SAMPLES || columns > MAX_SAMPLES || rows * columns > MAX_SAMPLES)                         \
                return HT_ERR_OPERAND;                                                                               \
            const T *from = (const T *)x->data + images[r] * c * height * width;                                     \
            T *to = (T *)y->data + r * c * bins_h * bins_w;                                                          \
            for (int64_t i = 0; i < bins_h; i++)                                                                     \
                for (int64_t j = 0; j < bins_w && !ht_paced_stop(&left, rows * columns * c); j++)                    \
                    bin_##T(from, c, height, width, y0 + (double)i * bin_y, x0 + (double)j * bin_x,                  \
                            bin_y / (double)ht_max64(rows, 1), bin_x / (double)ht_max64(columns, 1), rows, columns,  \
                            largest, (double *)call->scratch, to + i * bins_w + j, bins_h * bins_w);                 \
        }                                                                                                            \
        return HT_OK;                                                                                                \
    }
DEFINE_BIN(float)
DEFINE_BIN(double)

/* Scratch: 8 bytes per channel. */
int HT_KERNEL(roi_align)(const ht_call *call)
{
    if (call->num_in != 3 || call->num_out != 1 || call->num_ints != 3 || call->num_floats != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *rois = call->in[1], *images = call->in[2], *y = call->out[0];
    if (x->ndim != 4 || y->ndim != 4 || rois->ndim != 2 || rois->dims[1] != 4 || rois->dims[0] != y->dims[0] ||
        images->size != y->dims[0] || images->dtype != HT_INT64 || y->dims[1] != x->dims[1] || rois->dtype != x->dtype ||
        y->dtype != x->dtype || call->ints[0] < 0 || call->scratch_bytes < 8 * x->dims[1])
        return HT_ERR_OPERAND;
    if (y->size == 0)
        return HT_OK;
    if (x->dims[2] == 0 || x->dims[3] == 0)
        return HT_ERR_OPERAND;
    if (x->dtype == HT_FLOAT32)
        return regions_float(call);
    return x->dtype == HT_FLOAT64 ? regions_double(call) : HT_ERR_DTYPE;
}
