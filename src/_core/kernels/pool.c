/* Pooling over one to three spatial axes: max_pool, average_pool.
 *
 * Both: in x[n][c][...], float32 or float64; out y. ints: triples (see spatial.h) kernel, strides, pads before,
 * dilations; average_pool then pads after and count_padding (0: divide by the elements of x in the window; 1: by the
 * elements of the window within the padded x).
 * A window outside x gives -infinity (max_pool) or 0 (average_pool). max_pool passes NaN.
 * Windows walk row by row of the output, tap by tap, so the innermost loop runs along the axis.
 * Global pooling is average_pool or max_pool of the whole plane, or `reduce`.
 */
#include "spatial.h"

static int window_of(const ht_call *call, int num_ints, ht_window *w)
{
    const ht_tensor *x = call->in[0], *y = call->out[0];
    if (call->num_in != 1 || call->num_ints != num_ints)
        return HT_ERR_OPERAND;
    if (x->dtype != y->dtype || (x->dtype != HT_FLOAT32 && x->dtype != HT_FLOAT64))
        return HT_ERR_DTYPE;
    if (!ht_window_shapes(w, x, y) || y->dims[0] != w->n || y->dims[1] != w->c)
        return HT_ERR_OPERAND;
    for (int i = 0; i < 3; i++) {
        w->kernel[i] = call->ints[i];
        w->stride[i] = call->ints[3 + i];
        w->pad[i] = call->ints[6 + i];
        w->dilation[i] = call->ints[9 + i];
        if (w->kernel[i] < 1 || w->stride[i] < 1 || w->dilation[i] < 1 || w->pad[i] < 0)
            return HT_ERR_OPERAND;
    }
    return HT_OK;
}

/* How many taps t in [0, kernel) have position + t * dilation in [low, high). */
static int64_t taps_within(int64_t position, int64_t kernel, int64_t dilation, int64_t low, int64_t high)
{
    int64_t first, last;
    ht_valid_range(position - low, dilation, high - low, kernel, &first, &last);
    return last - first;
}

#define POOL(type)                                                                                                    \
    static void pool_##type(const ht_window *w, const type *x, type *y, int average, const int64_t *pad_after,        \
                            int count_padding)                                                                        \
    {                                                                                                                 \
        for (int64_t plane = 0; plane < w->n * w->c; plane++, x += w->in_size)                                        \
            for (int64_t z = 0; z < w->out[0]; z++)                                                                   \
                for (int64_t line = 0; line < w->out[1]; line++, y += w->out[2]) {                                    \
                    const int64_t from[2] = {z * w->stride[0] - w->pad[0], line * w->stride[1] - w->pad[1]};          \
                    for (int64_t i = 0; i < w->out[2]; i++)                                                           \
                        y[i] = average ? 0 : -(type)INFINITY;                                                         \
                    for (int64_t kz = 0; kz < w->kernel[0]; kz++) {                                                   \
                        const int64_t at_z = from[0] + kz * w->dilation[0];                                           \
                        if (at_z < 0 || at_z >= w->in[0])                                                             \
                            continue;                                                                                 \
                        for (int64_t ky = 0; ky < w->kernel[1]; ky++) {                                               \
                            const int64_t at_y = from[1] + ky * w->dilation[1];                                       \
                            if (at_y < 0 || at_y >= w->in[1])                                                         \
                                continue;                                                                             \
                            const type *row = x + (at_z * w->in[1] + at_y) * w->in[2];                                \
                            for (int64_t kx = 0; kx < w->kernel[2]; kx++) {                                           \
                                const int64_t offset = kx * w->dilation[2] - w->pad[2], stride = w->stride[2];        \
                                int64_t first, last;                                                                  \
                                ht_valid_range(offset, stride, w->in[2], w->out[2], &first, &last);                   \
                                if (average)                                                                          \
                                    for (int64_t i = first; i < last; i++)                                            \
                                        y[i] += row[i * stride + offset];                                             \
                                else if (stride == 1)                                                                 \
                                    for (int64_t i = first; i < last; i++)                                            \
                                        y[i] = row[i + offset] > y[i] || row[i + offset] != row[i + offset]           \
                                                   ? row[i + offset] : y[i];                                          \
                                else                                                                                  \
                                    for (int64_t i = first; i < last; i++) {                                          \
                                        const type value = row[i * stride + offset];                                  \
                                        y[i] = value > y[i] || value != value ? value : y[i];                         \
                                    }                                                                                 \
                            }                                                                                         \
                        }                                                                                             \
                    }                                                                                                 \
                    if (!average)                                                                                     \
                        continue;                                                                                     \
                    int64_t taps[2];                                                                                  \
                    for (int i = 0; i < 2; i++)                                                                       \
                        taps[i] = taps_within(from[i], w->kernel[i], w->dilation[i], count_padding ? -w->pad[i] : 0,  \
                                              w->in[i] + (count_padding ? pad_after[i] : 0));                         \
                    for (int64_t i = 0; i < w->out[2]; i++) {                                                         \
                        const int64_t width =                                                                         \
                            taps_within(i * w->stride[2] - w->pad[2], w->kernel[2], w->dilation[2],                   \
                                        count_padding ? -w->pad[2] : 0, w->in[2] + (count_padding ? pad_after[2] : 0)); \
                        const int64_t count = taps[0] * taps[1] * width;                                              \
                        y[i] = count ? y[i] / (type)count : 0;                                                        \
                    }                                                                                                 \
                }                                                                                                     \
    }
POOL(float)
POOL(double)

int HT_KERNEL(max_pool)(const ht_call *call)
{
    static const int64_t none[3] = {0, 0, 0};
    ht_window w;
    const int status = window_of(call, 12, &w);
    if (status != HT_OK)
        return status;
    if (call->in[0]->dtype == HT_FLOAT32)
        pool_float(&w, call->in[0]->data, call->out[0]->data, 0, none, 0);
    else
        pool_double(&w, call->in[0]->data, call->out[0]->data, 0, none, 0);
    return HT_OK;
}

int HT_KERNEL(average_pool)(const ht_call *call)
{
    ht_window w;
    const int status = window_of(call, 16, &w);
    if (status != HT_OK)
        return status;
    const int64_t *after = call->ints + 12;
    if (call->in[0]->dtype == HT_FLOAT32)
        pool_float(&w, call->in[0]->data, call->out[0]->data, 1, after, (int)call->ints[15]);
    else
        pool_double(&w, call->in[0]->data, call->out[0]->data, 1, after, (int)call->ints[15]);
    return HT_OK;
}
