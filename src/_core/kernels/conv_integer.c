/* conv_integer: convolution of 8-bit integers with exact 32-bit sums, of 1 to 3 spatial dimensions.
 *
 * in: x[N][C][spatial] int8 or uint8; w[M][C / group * product(kernel)] int16, its zero point taken off; x's zero point,
 *   one element of x's type; bias[M] int32 or NULL. out: y[N][M][spatial] int32.
 * ints: group, then triples (see spatial.h) kernel, strides, pads before, dilations. Pads after follow from y's
 *   shape: what lies outside x counts as its zero point.
 * scratch: for some number of pixels, in sixteens, 4 * ceil(C / group * product(kernel) / 2) bytes each.
 *
 * As conv_wide in conv.c: blocks of output pixels are packed (im2col) as B of a product whose A is the weights.
 */
#include "integer_micro.h"
#include "spatial.h"

typedef struct {
    ht_window w;
    int64_t depth, taps;
    int32_t dtype;
    int zero, whole; /* whole: every pixel is read at its own place, so that a row may run over the image's rows */
} conv;

/* dst[i] = row[at + i * stride] - zero for i in [0, count), 0 where that lies outside [0, size). */
#define SAMPLE(name, type)                                                                                            \
    static void name(const type *row, int64_t size, int64_t at, int64_t stride, int zero, int64_t count, int16_t *dst) \
    {                                                                                                                 \
        int64_t low, high;                                                                                            \
        if (stride == 1) { /* without a division */                                                                   \
            low = ht_min64(count, ht_max64(0, -at));                                                                  \
            high = ht_max64(low, ht_min64(count, size - at));                                                         \
        } else {                                                                                                      \
            ht_valid_range(at, stride, size, count, &low, &high);                                                     \
        }                                                                                                             \
        for (int64_t i = 0; i < low; i++)                                                                             \
            dst[i] = 0;                                                                                               \
        if (stride == 1)                                                                                              \
            for (int64_t i = low; i < high; i++)                                                                      \
                dst[i] = (int16_t)(row[at + i] - zero);                                                               \
        else                                                                                                          \
            for (int64_t i = low; i < high; i++)                                                                      \
                dst[i] = (int16_t)(row[at + i * stride] - zero);                                                      \
        for (int64_t i = high; i < count; i++)                                                                        \
            dst[i] = 0;                                                                                               \
    }
SAMPLE(sample_i8, int8_t)
SAMPLE(sample_u8, uint8_t)

enum { MOST_PIXELS = 512 };

/* Row k of the im2col matrix, pixels [p0, p0 + count). */
static void sample_row(const conv *c, const char *x, int64_t k, int64_t p0, int64_t count, int16_t *row)
{
    const ht_window *w = &c->w;
    const int64_t tap = k % c->taps;
    const int64_t kx = tap % w->kernel[2], ky = tap / w->kernel[2] % w->kernel[1];
    const int64_t kz = tap / w->kernel[2] / w->kernel[1];
    const char *plane = x + k / c->taps * w->in_size;
    if (c->whole) {
        if (c->dtype == HT_INT8)
            sample_i8((const int8_t *)plane, w->in_size, p0, 1, c->zero, count, row);
        else
            sample_u8((const uint8_t *)plane, w->in_size, p0, 1, c->zero, count, row);
        return;
    }
    int64_t ox = p0 % w->out[2], oy = p0 / w->out[2] % w->out[1], oz = p0 / w->out[2] / w->out[1];
    for (int64_t p = 0; p < count;) {
        const int64_t run = ht_min64(w->out[2] - ox, count - p);
        const int64_t iz = oz * w->stride[0] - w->pad[0] + kz * w->dilation[0];
        const int64_t iy = oy * w->stride[1] - w->pad[1] + ky * w->dilation[1];
        const int64_t at = ox * w->stride[2] - w->pad[2] + kx * w->dilation[2];
        if (iz < 0 || iz >= w->in[0] || iy < 0 || iy >= w->in[1])
            memset(row + p, 0, (size_t)run * sizeof *row);
        else if (c->dtype == HT_INT8)
            sample_i8((const int8_t *)plane + (iz * w->in[1] + iy) * w->in[2], w->in[2], at, w->stride[2], c->zero, run,
                      row + p);
        else
            sample_u8((const uint8_t *)plane + (iz * w->in[1] + iy) * w->in[2], w->in[2], at, w->stride[2], c->zero, run,
                      row + p);
        p += run;
        ox = 0;
        if (++oy == w->out[1]) {
            oy = 0;
            oz++;
        }
    }
}

int HT_KERNEL(conv_integer)(const ht_call *call)
{
    if (call->num_in != 4 || call->num_out != 1 || call->num_ints != 13)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *weights = call->in[1], *zero = call->in[2], *bias = call->in[3], *y = call->out[0];
    conv c = {.dtype = x->dtype, .taps = 1};
    if (!ht_window_shapes(&c.w, x, y))
        return HT_ERR_OPERAND;
    if ((x->dtype != HT_INT8 && x->dtype != HT_UINT8) || zero->dtype != x->dtype || weights->dtype != HT_INT16 ||
        y->dtype != HT_INT32 || (bias && bias->dtype != HT_INT32))
        return HT_ERR_DTYPE;
    const int64_t group = call->ints[0], maps = y->dims[1];
    for (int d = 0; d < 3; d++) {
        c.w.kernel[d] = call->ints[1 + d];
        c.w.stride[d] = call->ints[4 + d];
        c.w.pad[d] = call->ints[7 + d];
        c.w.dilation[d] = call->ints[10 + d];
        if (c.w.kernel[d] < 1 || c.w.stride[d] < 1 || c.w.dilation[d] < 1 || c.w.pad[d] < 0)
            return HT_ERR_OPERAND;
        c.taps *= c.w.kernel[d];
    }
    if (group < 1 || c.w.c % group || maps % group || y->dims[0] != c.w.n || zero->size != 1)
        return HT_ERR_OPERAND;
    if (y->size == 0)
        return HT_OK;
    const int64_t channels = c.w.c / group, group_maps = maps / group, pixels = c.w.out_size;
    c.depth = channels * c.taps;
    c.whole = c.taps == 1;
    for (int d = 0; d < 3; d++)
        c.whole = c.whole && c.w.stride[d] == 1 && c.w.pad[d] == 0 && c.w.out[d] == c.w.in[d];
    c.zero = x->dtype == HT_INT8 ? *(const int8_t *)zero->data : *(const uint8_t *)zero->data;
    const int64_t panel = ht_pairs_panel(c.depth);
    const int64_t room = panel ? call->scratch_bytes / (panel * (int64_t)sizeof(int16_t)) * HT_PANEL : MOST_PIXELS;
    const int64_t block = ht_min64(room, MOST_PIXELS);
    if (weights->size != maps * c.depth || (bias && bias->size != maps) || block < HT_PANEL)
        return HT_ERR_OPERAND;
    int16_t *packed = call->scratch, rows[2][MOST_PIXELS];
    for (int64_t n = 0; n < c.w.n; n++)
        for (int64_t g = 0; g < group; g++) {
            const char *image = (const char *)x->data + (n * c.w.c + g * channels) * c.w.in_size;
            for (int64_t p0 = 0; p0 < pixels; p0 += block) {
                const int64_t count = ht_min64(block, pixels - p0);
                for (int64_t k = 0; k < c.depth; k += 2) {
                    sample_row(&c, image, k, p0, count, rows[0]);
                    if (k + 1 < c.depth)
                        sample_row(&c, image, k + 1, p0, count, rows[1]);
                    ht_interleave_rows(rows[0], k + 1 < c.depth ? rows[1] : NULL, count, packed + k * HT_PANEL, panel);
                }
                ht_integer_product((const int16_t *)weights->data + g * group_maps * c.depth, c.depth, packed, c.depth,
                                   (int32_t *)y->data + (n * maps + g * group_maps) * pixels + p0, pixels,
                                   bias ? (const int32_t *)bias->data + g * group_maps : NULL, group_maps, count);
            }
        }
    return HT_OK;
}
