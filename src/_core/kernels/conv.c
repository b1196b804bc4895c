/* Convolution: y = activation(w * x + bias), over one to three spatial axes.
 *
 * conv: in x[n][c][...], w[m][c / group][...], bias[m] or NULL, all float32; out y[n][m][...].
 *   ints: group, then triples (see spatial.h) strides, pads before, dilations; activation (unary.h).
 *   floats: the activation's two parameters.
 *   scratch: 4 * HT_BLOCK_K * HT_BLOCK_N bytes (524,288); 0 for a depthwise convolution (c == group == m).
 *
 * A group is a matrix product w[m][k] * columns[k][outputs], k = c / group * kernel size. The columns are never
 * stored whole: blocks of k and of outputs are gathered straight into the panels that the micro-kernel of gemm_micro.h
 * reads (a 1x1 kernel's are the input itself). Weights are read in place. A depthwise convolution is done directly.
 * Sums over k run in ascending blocks, so results do not depend on a split of the outputs.
 * Cost: 2 * n * m * k * outputs operations.
 */
#include "gemm_micro.h"
#include "spatial.h"
#include "unary.h"

#define COLUMNS HT_BLOCK_N
#define ROWS (HT_TILE_ROWS * 16) /* rows of weights that stay in L2 while the panels pass by */

/* Column k of the product for outputs [j0, j0 + columns), in one row. */
static void gather_row(const ht_window *w, const float *x, int64_t k, int64_t j0, int64_t columns, float *row)
{
    const int64_t per_channel = w->kernel[0] * w->kernel[1] * w->kernel[2];
    const int64_t channel = k / per_channel, tap = k % per_channel;
    const int64_t at[3] = {tap / (w->kernel[1] * w->kernel[2]), tap / w->kernel[2] % w->kernel[1], tap % w->kernel[2]};
    int64_t offset[3], first, last;
    for (int i = 0; i < 3; i++)
        offset[i] = at[i] * w->dilation[i] - w->pad[i];
    ht_valid_range(offset[2], w->stride[2], w->in[2], w->out[2], &first, &last);
    const float *plane = x + channel * w->in_size;
    const int64_t width = w->out[2];
    for (int64_t j = j0; j < j0 + columns;) {
        const int64_t line = j / width, start = j % width, stop = ht_min64(width, start + j0 + columns - j);
        const int64_t z = line / w->out[1] * w->stride[0] + offset[0];
        const int64_t y = line % w->out[1] * w->stride[1] + offset[1];
        float *dst = row + (j - j0) - start;
        if (z < 0 || z >= w->in[0] || y < 0 || y >= w->in[1]) {
            memset(dst + start, 0, (size_t)(stop - start) * sizeof(float));
        } else {
            const float *src = plane + (z * w->in[1] + y) * w->in[2];
            const int64_t from = ht_min64(stop, ht_max64(start, first)), to = ht_max64(from, ht_min64(stop, last));
            for (int64_t i = start; i < from; i++)
                dst[i] = 0.0f;
            if (w->stride[2] == 1)
                memcpy(dst + from, src + from + offset[2], (size_t)(to - from) * sizeof(float));
            else
                for (int64_t i = from; i < to; i++)
                    dst[i] = src[i * w->stride[2] + offset[2]];
            for (int64_t i = to; i < stop; i++)
                dst[i] = 0.0f;
        }
        j += stop - start;
    }
}

/* Panels of columns [j0, j0 + columns) for k in [k0, k0 + count). */
static void gather_panels(const ht_window *w, const float *x, int64_t k0, int64_t count, int64_t j0, int64_t columns,
                          float *panels)
{
    float row[COLUMNS + HT_PANEL];
    for (int64_t k = 0; k < count; k++) {
        gather_row(w, x, k0 + k, j0, columns, row);
        for (int64_t j = columns; j % HT_PANEL; j++)
            row[j] = 0.0f;
        for (int64_t j = 0; j < columns; j += HT_PANEL)
            memcpy(panels + j * count + k * HT_PANEL, row + j, HT_PANEL * sizeof(float));
    }
}

/* One group of one image: y[m][outputs]. */
static void convolve(const ht_window *w, const float *x, const float *weights, const float *bias, int64_t m, int64_t k,
                     float low, float high, float *y, float *panels)
{
    const int64_t outputs = w->out_size;
    const int64_t k_blocks = ht_max64(1, ht_ceil_div(k, HT_BLOCK_K)), k_step = ht_ceil_div(k, k_blocks);
    const int pointwise = w->kernel[0] * w->kernel[1] * w->kernel[2] == 1 && w->stride[0] == 1 && w->stride[1] == 1 &&
                          w->stride[2] == 1 && w->pad[0] == 0 && w->pad[1] == 0 && w->pad[2] == 0 &&
                          w->in_size == w->out_size;
    for (int64_t j = 0; j < outputs; j += COLUMNS) {
        const int64_t columns = ht_min64(COLUMNS, outputs - j);
        for (int64_t block = 0; block < k_blocks; block++) {
            const int64_t k0 = block * k_step, count = ht_min64(k_step, k - k0);
            if (pointwise)
                ht_pack_panels(x + k0 * outputs + j, outputs, 0, count, columns, panels, count);
            else
                gather_panels(w, x, k0, count, j, columns, panels);
            for (int64_t i = 0; i < m; i += ROWS) {
                const ht_epilogue epilogue = {.bias = bias ? bias + i : NULL, .bias_row = 1, .alpha = 1.0f,
                                              .beta = 1.0f, .low = low, .high = high};
                const ht_tile tile = {.a = weights + i * k + k0, .a_row = k, .a_k = 1, .b = panels, .b_k = HT_PANEL,
                                      .b_panel = count * HT_PANEL, .c = y + i * outputs + j, .c_row = outputs,
                                      .k = count, .columns = columns, .accumulate = block > 0,
                                      .epilogue = block == k_blocks - 1 ? &epilogue : NULL};
                ht_gemm_block(&tile, ht_min64(ROWS, m - i), columns);
            }
        }
    }
}

/* One channel with its own kernel: every tap adds a shifted row to the row of outputs. */
static void depthwise(const ht_window *w, const float *x, const float *weights, float bias, float low, float high,
                      float *y)
{
    for (int64_t z = 0; z < w->out[0]; z++)
        for (int64_t line = 0; line < w->out[1]; line++, y += w->out[2]) {
            for (int64_t i = 0; i < w->out[2]; i++)
                y[i] = bias;
            for (int64_t kz = 0; kz < w->kernel[0]; kz++) {
                const int64_t at_z = z * w->stride[0] + kz * w->dilation[0] - w->pad[0];
                if (at_z < 0 || at_z >= w->in[0])
                    continue;
                for (int64_t ky = 0; ky < w->kernel[1]; ky++) {
                    const int64_t at_y = line * w->stride[1] + ky * w->dilation[1] - w->pad[1];
                    if (at_y < 0 || at_y >= w->in[1])
                        continue;
                    const float *src = x + (at_z * w->in[1] + at_y) * w->in[2];
                    const float *taps = weights + (kz * w->kernel[1] + ky) * w->kernel[2];
                    for (int64_t kx = 0; kx < w->kernel[2]; kx++) {
                        const int64_t offset = kx * w->dilation[2] - w->pad[2];
                        int64_t first, last;
                        ht_valid_range(offset, w->stride[2], w->in[2], w->out[2], &first, &last);
                        const float tap = taps[kx];
                        if (w->stride[2] == 1)
                            for (int64_t i = first; i < last; i++)
                                y[i] += tap * src[i + offset];
                        else
                            for (int64_t i = first; i < last; i++)
                                y[i] += tap * src[i * w->stride[2] + offset];
                    }
                }
            }
            for (int64_t i = 0; i < w->out[2]; i++) {
                const float low_cut = y[i] < low ? low : y[i];
                y[i] = low_cut > high ? high : low_cut;
            }
        }
}

int HT_KERNEL(conv)(const ht_call *call)
{
    if (call->num_in != 3 || call->num_ints != 11 || call->num_floats != 2)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *weights = call->in[1], *bias = call->in[2], *y = call->out[0];
    const int64_t group = call->ints[0];
    const int activation = (int)call->ints[10];
    ht_window w;
    if (x->dtype != HT_FLOAT32 || weights->dtype != HT_FLOAT32 || (bias && bias->dtype != HT_FLOAT32))
        return HT_ERR_DTYPE;
    if (!ht_window_shapes(&w, x, y) || weights->ndim != x->ndim || group < 1 || w.c % group ||
        weights->dims[0] % group || weights->dims[1] != w.c / group || y->dims[0] != w.n ||
        y->dims[1] != weights->dims[0] || (bias && bias->size != weights->dims[0]))
        return HT_ERR_OPERAND;
    for (int i = 0; i < 3; i++) {
        const int axis = weights->ndim - 3 + i;
        w.kernel[i] = axis < 2 ? 1 : weights->dims[axis];
        w.stride[i] = call->ints[1 + i];
        w.pad[i] = call->ints[4 + i];
        w.dilation[i] = call->ints[7 + i];
        if (w.stride[i] < 1 || w.dilation[i] < 1 || w.pad[i] < 0)
            return HT_ERR_OPERAND;
    }
    const int64_t m = weights->dims[0] / group, c = w.c / group;
    const int64_t k = c * w.kernel[0] * w.kernel[1] * w.kernel[2];
    const float p0 = (float)call->floats[0], p1 = (float)call->floats[1];
    float low, high;
    ht_unary_clip_range(activation, p0, p1, &low, &high);
    if (c > 1 || m > 1)
        if (call->scratch_bytes < (int64_t)(HT_BLOCK_K * COLUMNS * sizeof(float)))
            return HT_ERR_OPERAND;
    for (int64_t n = 0; n < w.n; n++)
        for (int64_t g = 0; g < group; g++) {
            const float *from = (const float *)x->data + (n * w.c + g * c) * w.in_size;
            const float *taps = (const float *)weights->data + g * m * k;
            const float *offsets = bias ? (const float *)bias->data + g * m : NULL;
            float *to = (float *)y->data + (n * group + g) * m * w.out_size;
            if (c == 1 && m == 1)
                depthwise(&w, from, taps, offsets ? *offsets : 0.0f, low, high, to);
            else
                convolve(&w, from, taps, offsets, m, k, low, high, to, call->scratch);
            if (!ht_unary_is_clip(activation))
                ht_unary_f32(activation, p0, p1, to, to, m * w.out_size);
        }
    return HT_OK;
}
