/* What follows the sums of a convolution and cannot be done where they are stored: conv.h. It is done in place, while the
 * results are in a cache. */
#include "conv.h"

/* y * after_scale + after_shift + late, for `count` results of a channel. */
static void scale_and_shift(const ht_conv *c, int64_t channel, int64_t at, int64_t count)
{
    const vf scale = vf_set1(c->after_scale ? c->after_scale[channel] : 1.0f);
    const vf shift = vf_set1(c->after_shift ? c->after_shift[channel] : -0.0f); /* keeps the sign of 0 */
    float *y = c->y + at;
    const float *late = c->late ? c->late + at : NULL;
    int64_t i = 0;
    for (; i + VF_LANES <= count; i += VF_LANES) {
        vf v = vf_fma(vf_load(y + i), scale, shift);
        if (late)
            v += vf_load(late + i);
        vf_store(y + i, v);
    }
    if (i < count) {
        vf v = vf_fma(vf_load_n(y + i, count - i), scale, shift);
        if (late)
            v += vf_load_n(late + i, count - i);
        vf_store_n(y + i, count - i, v);
    }
}

void ht_conv_finish(const ht_conv *c, int64_t channel, int64_t at, int64_t count)
{
    if (count <= 0)
        return;
    if (!ht_unary_is_clip(c->activation))
        ht_unary_f32(c->activation, c->p0, c->p1, c->y + at, c->y + at, count);
    if (c->after_scale || c->after_shift || c->late)
        scale_and_shift(c, channel, at, count);
}

void ht_conv_finish_channels(const ht_conv *c, int64_t m0, int64_t m1)
{
    const int64_t first = m0 * c->pixels;
    if (!ht_unary_is_clip(c->activation))
        ht_unary_f32(c->activation, c->p0, c->p1, c->y + first, c->y + first, (m1 - m0) * c->pixels);
    if (c->after_scale || c->after_shift || c->late)
        for (int64_t m = m0; m < m1; m++)
            scale_and_shift(c, m, m * c->pixels, c->pixels);
}
