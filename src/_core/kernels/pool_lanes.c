/* Pooling with 16 channels in the lanes, for short rows. Channels are transposed so that each pixel is a vector of
 * channels, and the results are transposed back. Rows are combined first, then columns, as in pool.c, so the bits are
 * the same. */
#include "pool.h"
#include "transpose.h"

enum { CHANNELS = HT_PANEL };

/* Computes one row of outputs from the combined row. ends: per column the first tap and one past the last. */
HT_INLINE void combine_columns(const ht_window *w, const float *row, const int64_t *ends, const float *counts,
                               float count_rows, float *y, const int average)
{
    const int64_t pitch = w->dilation[2] * CHANNELS;
    for (int64_t column = 0; column < w->out[2]; column++, y += CHANNELS) {
        const int64_t first = ends[2 * column], taps = ends[2 * column + 1] - first;
        const int64_t at = column * w->stride[2] - w->pad[2] + first * w->dilation[2];
        const float *from = row + (taps > 0 ? at : 0) * CHANNELS;
        const float divisor = counts[column] * count_rows;
        for (int lane = 0; lane < CHANNELS; lane += VF_LANES) {
            vf result = vf_set1(average ? 0.0f : -INFINITY);
            for (int64_t tap = 0; tap < taps; tap++)
                result = ht_combine(result, vf_load(from + tap * pitch + lane), average);
            if (average && divisor != 0)
                result = result / vf_set1(divisor);
            vf_store(y + lane, result);
        }
    }
}

HT_INLINE void pool_block(const ht_window *w, const float *x, float *y, const int64_t *ends, const float *counts, float *row,
                          const int average, const int64_t *pad_after, int count_padding)
{
    const int64_t pitch = w->in[2] * CHANNELS;
    for (int64_t z = 0; z < w->out[0]; z++)
        for (int64_t line = 0; line < w->out[1]; line++, y += w->out[2] * CHANNELS) {
            const int64_t at_z = z * w->stride[0] - w->pad[0], at_y = line * w->stride[1] - w->pad[1];
            const float *rows[HT_POOL_TAPS];
            int64_t taps = 0, first, last;
            ht_valid_range(at_y, w->dilation[1], w->in[1], w->kernel[1], &first, &last);
            for (int64_t kz = 0; kz < w->kernel[0]; kz++) {
                const int64_t iz = at_z + kz * w->dilation[0];
                for (int64_t ky = first; iz >= 0 && iz < w->in[0] && ky < last; ky++)
                    rows[taps++] = x + (iz * w->in[1] + at_y + ky * w->dilation[1]) * pitch;
            }
            if (taps == 0)
                for (int64_t i = 0; i < pitch; i++)
                    row[i] = average ? 0.0f : -INFINITY;
            else
                HT_BY_TAPS(taps, ht_combine_rows(rows, TAPS, pitch, row, average))
            float count_rows = 0;
            if (average)
                count_rows = (float)(ht_counted(w, 0, at_z, pad_after, count_padding) *
                                     ht_counted(w, 1, at_y, pad_after, count_padding));
            combine_columns(w, row, ends, counts, count_rows, y, average);
        }
}

void HT_KERNEL(pool_lanes)(const ht_window *w, const float *x, float *y, int average, const int64_t *pad_after,
                           int count_padding, void *turned)
{
    float *from = (float *)turned, *to = from + CHANNELS * w->in_size, *row = to + CHANNELS * w->out_size;
    int64_t *ends = (int64_t *)(void *)(row + CHANNELS * w->in[2]);
    float *counts = (float *)(void *)(ends + 2 * w->out[2]);
    for (int64_t column = 0; column < w->out[2]; column++) {
        const int64_t at = column * w->stride[2] - w->pad[2];
        ht_valid_range(at, w->dilation[2], w->in[2], w->kernel[2], &ends[2 * column], &ends[2 * column + 1]);
        counts[column] = average ? (float)ht_counted(w, 2, at, pad_after, count_padding) : 0;
    }
    const int64_t planes = w->n * w->c;
    for (int64_t plane = 0; plane < planes; plane += CHANNELS) {
        const int64_t channels = ht_min64(CHANNELS, planes - plane);
        HT_SHARED(transpose)(4, (const char *)(x + plane * w->in_size), 4 * w->in_size, (char *)from, 4 * CHANNELS,
                             w->in_size, channels);
        if (average)
            pool_block(w, from, to, ends, counts, row, 1, pad_after, count_padding);
        else
            pool_block(w, from, to, ends, counts, row, 0, pad_after, 0);
        HT_SHARED(transpose)(4, (const char *)to, 4 * CHANNELS, (char *)(y + plane * w->out_size), 4 * w->out_size,
                             channels, w->out_size);
    }
}
