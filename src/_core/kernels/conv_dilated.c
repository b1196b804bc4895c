/* Dilated 3x3 convolution by Winograd's filtering. With dilations (d, e), the outputs of every d-th row and e-th column
 * are a convolution without dilation over every d-th row and e-th column of the input. Each of these d * e phases is
 * gathered, convolved by conv_winograd.c and scattered. Cost: that of conv_winograd.c, plus one copy of each input and
 * output, element by element.
 */
#include "conv.h"

#define ALIGNED(floats) (((floats) + 15) / 16 * 16)

static int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

/* One phase: its convolution and its first row and column. */
typedef struct {
    ht_conv conv;
    int64_t in[3], out[3];
} phase;

/* Phase (a, b): the outputs from row a and column b on. */
static phase phase_of(const ht_conv *c, int64_t a, int64_t b)
{
    const int64_t first[3] = {0, a, b};
    phase p = {.conv = *c, .out = {0, a, b}};
    for (int d = 1; d < 3; d++) {
        const int64_t step = c->dilation[d], pads = floor_div(first[d] - c->pad[d], step);
        p.in[d] = first[d] - c->pad[d] - pads * step;
        p.conv.pad[d] = -pads;
        p.conv.in[d] = ht_ceil_div(ht_max64(0, c->in[d] - p.in[d]), step);
        p.conv.out[d] = ht_ceil_div(ht_max64(0, c->out[d] - first[d]), step);
        p.conv.dilation[d] = 1;
    }
    p.conv.in_plane = p.conv.in[1] * p.conv.in[2];
    p.conv.pixels = p.conv.out[1] * p.conv.out[2];
    return p;
}

static int64_t gathered(const ht_conv *c)
{
    return ALIGNED(c->in_channels * ht_ceil_div(c->in[1], c->dilation[1]) * ht_ceil_div(c->in[2], c->dilation[2]));
}

static int64_t convolved(const ht_conv *c)
{
    return ALIGNED(c->out_channels * ht_ceil_div(c->out[1], c->dilation[1]) * ht_ceil_div(c->out[2], c->dilation[2]));
}

int ht_conv_dilated_fits(const ht_conv *c, int64_t m, int64_t scratch_bytes)
{
    for (int d = 0; d < 3; d++)
        if (c->dilation[d] > 1 << 20 || c->pad[d] > 1 << 20)
            return 0;
    if (ht_ceil_div(c->in[2], c->dilation[2]) > HT_WINOGRAD_WIDTH)
        return 0;
    const phase p = phase_of(c, 0, 0); /* it has the most outputs */
    return ht_conv_winograd_fits(&p.conv, m, scratch_bytes - (gathered(c) + convolved(c)) * (int64_t)sizeof(float));
}

static void gather(const ht_conv *c, const phase *p, float *dst)
{
    for (int64_t channel = 0; channel < c->in_channels; channel++)
        for (int64_t y = 0; y < p->conv.in[1]; y++) {
            const float *row = c->x + channel * c->in_plane + (p->in[1] + y * c->dilation[1]) * c->in[2] + p->in[2];
            for (int64_t x = 0; x < p->conv.in[2]; x++)
                *dst++ = row[x * c->dilation[2]];
        }
}

static void scatter(const ht_conv *c, const phase *p, float *src)
{
    const int64_t count = p->conv.out[2], step = c->dilation[2];
    for (int64_t channel = 0; channel < c->out_channels; channel++)
        for (int64_t y = 0; y < p->conv.out[1]; y++, src += count) {
            const int64_t at = channel * c->pixels + (p->out[1] + y * c->dilation[1]) * c->out[2] + p->out[2];
            if (c->addend)
                for (int64_t x = 0; x < count; x++)
                    src[x] += c->addend[at + x * step];
            if (c->activation != HT_UNARY_NONE)
                ht_unary_f32(c->activation, c->p0, c->p1, src, src, count);
            for (int64_t x = 0; x < count; x++)
                c->y[at + x * step] = src[x];
        }
}

void ht_conv_dilated(const ht_conv *c, int64_t m, int64_t number)
{
    phase p = phase_of(c, number / c->dilation[2], number % c->dilation[2]);
    if (p.conv.pixels == 0)
        return;
    float *x = c->scratch, *y = x + gathered(c);
    gather(c, &p, x);
    p.conv.x = x;
    p.conv.y = y;
    p.conv.scratch = y + convolved(c);
    p.conv.addend = NULL;
    p.conv.activation = HT_UNARY_NONE;
    p.conv.low = -INFINITY;
    p.conv.high = INFINITY;
    const int64_t blocks = ht_conv_winograd_blocks(&p.conv, m);
    for (int64_t block = 0; block < blocks; block++)
        ht_conv_winograd(&p.conv, m, block);
    scatter(c, &p, y);
}
