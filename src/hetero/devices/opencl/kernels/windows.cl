// Convolutions, pools and LRN, on [batch, channels, height, width].

// Sizes of x, y and the window; strides, dilations, and the padding before.
typedef struct {
    uint channels, height, width, out_channels, out_height, out_width;
    uint window_height, window_width;
    int stride_y, stride_x, dilation_y, dilation_x, pad_y, pad_x;
    uint groups;
} Window;

// Does `each` for every position (iy, ix) of the input that element (oy, ox) of the result reads, with its place (ky, kx)
// in the window.
#define EACH_READ(each)                                                                                                \
    for (uint ky = 0; ky < s.window_height; ky++) {                                                                    \
        int iy = (int)oy * s.stride_y - s.pad_y + (int)ky * s.dilation_y;                                              \
        if (iy < 0 || iy >= (int)s.height)                                                                             \
            continue;                                                                                                  \
        for (uint kx = 0; kx < s.window_width; kx++) {                                                                 \
            int ix = (int)ox * s.stride_x - s.pad_x + (int)kx * s.dilation_x;                                          \
            if (ix < 0 || ix >= (int)s.width)                                                                          \
                continue;                                                                                              \
            each;                                                                                                      \
        }                                                                                                              \
    }

// One work-item computes one element. w: [out_channels, channels / groups, window_height, window_width].
__kernel void convolve(__global const S *x, __global const S *w, __global const S *bias, __global S *y, Window s,
                       uint n, int has_bias)
{
    uint i = get_global_id(0);
    if (i >= n)
        return;
    uint ox = i % s.out_width, oy = i / s.out_width % s.out_height;
    uint m = i / s.out_width / s.out_height % s.out_channels;
    uint image = i / s.out_width / s.out_height / s.out_channels;
    uint depth = s.channels / s.groups, first = m / (s.out_channels / s.groups) * depth;
    float total = has_bias ? LOAD(m, bias) : 0;
    for (uint c = 0; c < depth; c++) {
        float part = 0;
        // Padding is multiplied too: an infinite weight or NaN reaches every result.
        for (uint ky = 0; ky < s.window_height; ky++)
            for (uint kx = 0; kx < s.window_width; kx++) {
                int iy = (int)oy * s.stride_y - s.pad_y + (int)ky * s.dilation_y;
                int ix = (int)ox * s.stride_x - s.pad_x + (int)kx * s.dilation_x;
                bool inside = iy >= 0 && iy < (int)s.height && ix >= 0 && ix < (int)s.width;
                float value = inside ? LOAD(((image * s.channels + first + c) * s.height + iy) * s.width + ix, x) : 0;
                part += value * LOAD(((m * depth + c) * s.window_height + ky) * s.window_width + kx, w);
            }
        total += part;
    }
    STORE(total, i, y);
}

// columns[c, ky, kx, p] = x at the position that pixel begin + p of the result reads, for count pixels of an image.
__kernel void columns(__global const S *x, __global S *columns, Window s, uint n, uint image, uint begin, uint count)
{
    uint i = get_global_id(0);
    if (i >= n)
        return;
    uint pixel = begin + i % count, rest = i / count;
    uint kx = rest % s.window_width, ky = rest / s.window_width % s.window_height;
    uint c = rest / s.window_width / s.window_height;
    int iy = (int)(pixel / s.out_width) * s.stride_y - s.pad_y + (int)ky * s.dilation_y;
    int ix = (int)(pixel % s.out_width) * s.stride_x - s.pad_x + (int)kx * s.dilation_x;
    bool inside = iy >= 0 && iy < (int)s.height && ix >= 0 && ix < (int)s.width;
    STORE(inside ? LOAD(((image * s.channels + c) * s.height + iy) * s.width + ix, x) : 0.0f, i, columns);
}

__kernel void max_pool(__global const S *x, __global S *y, Window s, uint n)
{
    uint i = get_global_id(0);
    if (i >= n)
        return;
    uint ox = i % s.out_width, oy = i / s.out_width % s.out_height, plane = i / s.out_width / s.out_height;
    float most = -INFINITY;
    EACH_READ(float value = LOAD((plane * s.height + iy) * s.width + ix, x);
              most = value > most || isnan(value) ? value : most)
    STORE(most, i, y);
}

__kernel void average_pool(__global const S *x, __global S *y, Window s, uint n, int count_include_pad)
{
    uint i = get_global_id(0);
    if (i >= n)
        return;
    uint ox = i % s.out_width, oy = i / s.out_width % s.out_height, plane = i / s.out_width / s.out_height;
    float total = 0;
    uint count = 0;
    EACH_READ(total += LOAD((plane * s.height + iy) * s.width + ix, x); count++)
    STORE(total / (count_include_pad ? s.window_height * s.window_width : count), i, y);
}

// x: [outer, channels, inner]; the sum is over channels c - before .. c + after.
__kernel void local_response(__global const S *x, __global S *y, uint n, uint channels, uint inner, int before,
                             int after, float factor, float beta, float bias)
{
    uint i = get_global_id(0);
    if (i >= n)
        return;
    int c = i / inner % channels;
    int first = max(c - before, 0), last = min(c + after, (int)channels - 1);
    float total = 0;
    for (int other = first; other <= last; other++) {
        float value = LOAD(i - (c - first) * inner + (other - first) * inner, x);
        total += value * value;
    }
    STORE(LOAD(i, x) * pow(bias + factor * total, -beta), i, y);
}
