#include "scratch.h"

#include "custom.h"
#include "elements.h"
#include "kernels.h"
#include "layouts.h"
#include "pointwise_depthwise.h"
#include "tiny_filters.h"

#include <hetero/custom_op.h>

#define NUMBER(name) NUMBER_##name,
enum { HT_KERNELS(NUMBER) };

static const int64_t LARGEST = HT_MAX_BYTES; /* of a size; the products below are checked against it too */

enum {
    PREPARED_BYTES = 1 << 20,     /* of the rows that matmul_integer and matmul_nbits_bytes prepare at a time: a part of the L2 cache */
    DFT_LONG = 1 << 15,           /* longer lines are transformed one at a time, to save memory */
    POOL_SHORT_ROW = 64,          /* columns of a result up to which channels in the lanes are faster */
    POOL_SMALL_SHORT_ROW = 32,    /* the same for windows that pool_small.c pools */
    POOL_LONG_STRIDE = 2,         /* strides above this are slow along rows */
    POOL_MIN_PLANES = 8,          /* planes from which channels in the lanes are faster */
    POOL_LANES_BYTES = 1 << 20,   /* bytes of planes that channels in the lanes may take: they stay in the L2 cache */
    WINDOW_INTS = 12              /* kernel, strides, pads before and dilations, three each */
};

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* Whether the product of three sizes is at most LARGEST. */
static int is_moderate(int64_t a, int64_t b, int64_t c)
{
    return (double)a * (double)b * (double)c <= (double)LARGEST;
}

/* Whether ints[first, first + count) exist and lie within 0 and LARGEST. */
static int has_sizes(const ht_call *call, int first, int count)
{
    if (call->num_ints < first + count)
        return 0;
    for (int i = first; i < first + count; i++)
        if (call->ints[i] < 0 || call->ints[i] > LARGEST)
            return 0;
    return 1;
}

/* Whether input `number` is there and has at least `ndim` dims, all within LARGEST. */
static int has_input(const ht_call *call, int number, int ndim)
{
    if (number >= call->num_in || !call->in[number] || call->in[number]->ndim < ndim)
        return 0;
    for (int d = 0; d < call->in[number]->ndim; d++)
        if (call->in[number]->dims[d] > LARGEST)
            return 0;
    return 1;
}

/* Panels of float32 that are packed already are read in place; other types than float32 need no memory. */
static int64_t of_product(const ht_call *call, int tiles)
{
    if (!has_sizes(call, 0, 6) || !has_input(call, 0, 0) || call->num_in < 2 || !call->in[1] ||
        call->in[0]->dtype != HT_FLOAT32)
        return 0;
    const int64_t m = call->ints[0], n = call->ints[1], k = call->ints[2];
    return (call->ints[5] == 1 && call->in[1]->dtype == HT_FLOAT32 ? 0 : ht_scratch_gemm(k, n)) +
           (tiles && (call->ints[5] == 2 || ht_tiled_pays(m, n, k)) ? ht_scratch_gemm_tiled(m, n, k) : 0);
}

static int64_t of_conv(const ht_call *call, int tiles)
{
    if (!has_sizes(call, 0, 3 + WINDOW_INTS) || !has_input(call, 0, 3) || call->num_out != 1 || call->ints[0] < 1)
        return 0;
    const ht_tensor *x = call->in[0], *y = call->out[0];
    const int64_t group = call->ints[0], packing = call->ints[1], *kernel = call->ints + 3;
    const int64_t channels = x->dims[1] / group, maps = y->dims[1] / group;
    if (packing == 0) { /* bounds a depthwise convolution too, which packs nothing */
        const int64_t taps = is_moderate(kernel[0], kernel[1], kernel[2]) ? kernel[0] * kernel[1] * kernel[2] : LARGEST;
        if (!is_moderate(y->dims[1], channels, taps))
            return 0;
        int64_t in_pixels = 1, pixels = 1;
        for (int d = 2; d < y->ndim; d++) {
            in_pixels = ht_size_product(in_pixels, x->dims[d]);
            pixels = ht_size_product(pixels, y->dims[d]);
        }
        if (tiles && ht_conv_tiled(maps, in_pixels, pixels, channels, taps, HT_CONV_KEPT))
            return HT_CONV_SCRATCH;
        return ht_scratch_conv_packing(group, maps, channels * taps);
    }
    if (packing == 1 || packing == 3)
        return HT_CONV_SCRATCH;
    return max64(HT_CONV_SCRATCH, ht_scratch_winograd(channels, packing));
}

static int64_t of_pointwise_depthwise(const ht_call *call)
{
    if (!has_sizes(call, 2, 6) || !has_input(call, 0, 4) || call->num_out != 1 || call->out[0]->ndim != 4)
        return 0;
    const int64_t *x = call->in[0]->dims, height = call->ints[2], stride = call->ints[4];
    const int64_t least = min64(call->out[0]->dims[2], HT_POINTWISE_LEAST_ROWS);
    const int64_t rows = ht_pointwise_rows_read(least, height, stride, x[2]);
    const int64_t band = max64(HT_POINTWISE_BYTES, ht_pointwise_bytes(x[1], ht_size_product(rows, x[3])));
    const int64_t kept = ht_size_product(call->out[0]->dims[1], ht_pointwise_kept(height, stride, x[3]));
    const int64_t bytes = ht_size_sum(band, ht_size_product(kept, sizeof(float)));
    return bytes > LARGEST ? 0 : HT_CONV_SCRATCH + bytes;
}

/* With channels in the lanes (pool_lanes.c), if that is faster. */
static int64_t of_pool(const ht_call *call)
{
    if (!has_sizes(call, 3, 3) || !has_input(call, 0, 3) || call->num_out != 1 || call->in[0]->dtype != HT_FLOAT32)
        return 0;
    const ht_tensor *x = call->in[0], *y = call->out[0];
    const int last = x->ndim - 1;
    int64_t in_size = 1, out_size = 1;
    for (int d = 2; d < x->ndim; d++) {
        in_size *= x->dims[d];
        out_size *= y->dims[d];
        if (in_size > POOL_LANES_BYTES || out_size > POOL_LANES_BYTES)
            return 0;
    }
    const int is_small = (call->ints[2] == 2 || call->ints[2] == 3) && call->ints[5] <= 2 && call->ints[11] == 1;
    const int is_short = y->dims[last] <= (is_small ? POOL_SMALL_SHORT_ROW : POOL_SHORT_ROW) ||
                         call->ints[5] > POOL_LONG_STRIDE;
    const int64_t bytes = ht_scratch_pool_lanes(in_size, out_size, x->dims[last], y->dims[last]);
    return is_short && x->dims[0] * x->dims[1] >= POOL_MIN_PLANES && bytes <= POOL_LANES_BYTES ? bytes : 0;
}

static int64_t of_col2im_lanes(const ht_call *call)
{
    if (call->num_out != 1 || call->out[0]->ndim < 3)
        return 0;
    int64_t size = 1;
    for (int d = 2; d < call->out[0]->ndim; d++)
        size = ht_size_product(size, call->out[0]->dims[d]);
    return size > LARGEST / ht_scratch_col2im_lanes(1) ? 0 : ht_scratch_col2im_lanes(size);
}

static int64_t of_matmul_integer(const ht_call *call)
{
    if (!has_sizes(call, 2, 1))
        return 0;
    const int64_t row = ht_scratch_matmul_integer_row(call->ints[2]);
    return row * max64(HT_MATMUL_INTEGER_LEAST_ROWS, min64(HT_MATMUL_INTEGER_MOST_ROWS, PREPARED_BYTES / row));
}

static int64_t of_matmul_nbits_bytes(const ht_call *call)
{
    if (!has_sizes(call, 0, 5) || call->ints[4] < 1 || call->ints[4] > HT_NBITS_MAX_BYTES_BLOCK)
        return 0;
    const int64_t row = max64(1, ht_scratch_nbits_row(call->ints[2], call->ints[4]));
    return row * max64(1, min64(call->ints[0], PREPARED_BYTES / row));
}

static int64_t of_recurrent(const ht_call *call, int64_t gates)
{
    return has_sizes(call, 0, 3) && is_moderate(call->ints[1], gates, call->ints[2])
               ? ht_scratch_recurrent(call->ints[1], gates, call->ints[2])
               : 0;
}

static int64_t of_attention(const ht_call *call)
{
    if (!has_sizes(call, 0, 4) || call->ints[1] == 0 || max64(max64(call->ints[0], call->ints[1]),
                                                              max64(call->ints[2], call->ints[3])) > HT_ATTENTION_MAX_DIM)
        return 0;
    return ht_scratch_attention(call->ints[0], call->ints[1], call->ints[2], call->ints[3]);
}

static int64_t of_grouped_attention(const ht_call *call)
{
    if (!has_sizes(call, 0, 5) || call->ints[3] < 1 || !is_moderate(call->ints[2], call->ints[4] + 1, 4))
        return 0;
    return ht_scratch_grouped_attention(call->ints[2] / call->ints[3], call->ints[4]);
}

static int64_t lines(int64_t bytes) { return ceil_div(bytes, HT_CHAIN_LINE) * HT_CHAIN_LINE; }

static int64_t of_chain(const ht_call *call)
{
    if (!has_sizes(call, 0, 3) || call->ints[1] + call->ints[2] > call->num_ints || call->ints[0] > INT32_MAX)
        return 0;
    const int64_t tile = call->ints[0], registers = call->ints[1], steps = call->ints[2];
    if (!has_sizes(call, 3, (int)registers))
        return 0;
    int64_t bytes = steps * HT_CHAIN_STEP_BYTES + lines((call->num_in + call->num_out + registers) * HT_CHAIN_SLOT_BYTES);
    for (int64_t r = 0; r < registers; r++)
        bytes += lines(tile * ht_element_bytes((int32_t)call->ints[3 + r])) + HT_CHAIN_LINE;
    for (int k = 0; k < call->num_in; k++) /* operands that broadcast may be expanded */
        if (call->in[k] && call->in[k]->dtype == HT_FLOAT32 && call->num_out > 0 && call->in[k]->size != call->out[0]->size)
            bytes += lines(tile * (int64_t)sizeof(float)) + HT_CHAIN_LINE;
    return bytes;
}

static int64_t of_topk(const ht_call *call)
{
    if (!has_sizes(call, 0, 4) || call->num_in < 1 || !call->in[0])
        return 0;
    return ht_scratch_topk(call->ints[1], call->ints[3], call->ints[2], ht_element_bytes(call->in[0]->dtype));
}

static int64_t of_dft(const ht_call *call)
{
    if (!has_sizes(call, 0, 3) || call->num_in < 2 || !call->in[1])
        return 0;
    const int64_t m = call->in[1]->size / 2, lines_side_by_side = call->ints[0] * call->ints[2] > 1 && m <= DFT_LONG;
    return ht_scratch_dft(lines_side_by_side ? HT_DFT_LINES : 1, m);
}

static int64_t of_conv_integer(const ht_call *call)
{
    ht_quad_layout l;
    return ht_quad_layout_of(&l, call->ints, call->num_ints) ? ht_scratch_filters(l.steps, ht_numbered_pixels(&l)) : 0;
}

int64_t ht_depthwise_integer_scratch_baseline(const ht_call *call);

int64_t ht_scratch_bytes(int kernel, const ht_call *call, int tiles)
{
    switch (kernel) {
    case NUMBER_gemm: case NUMBER_matmul: return of_product(call, tiles);
    case NUMBER_conv: return of_conv(call, tiles);
    case NUMBER_pointwise_depthwise: return of_pointwise_depthwise(call);
    case NUMBER_max_pool: case NUMBER_average_pool: return of_pool(call);
    case NUMBER_col2im_lanes: return of_col2im_lanes(call);
    case NUMBER_matmul_integer: return of_matmul_integer(call);
    case NUMBER_matmul_nbits_bytes: return of_matmul_nbits_bytes(call);
    case NUMBER_conv_integer: return of_conv_integer(call);
    case NUMBER_depthwise_integer: return ht_depthwise_integer_scratch_baseline(call);
    case NUMBER_lstm: return of_recurrent(call, 4);
    case NUMBER_gru: return of_recurrent(call, 3);
    case NUMBER_rnn: return of_recurrent(call, 1);
    case NUMBER_attention: return of_attention(call);
    case NUMBER_grouped_attention: return of_grouped_attention(call);
    case NUMBER_chain: return of_chain(call);
    case NUMBER_topk: return of_topk(call);
    case NUMBER_dft: return of_dft(call);
    case NUMBER_nms: return has_input(call, 0, 2) ? ht_scratch_nms(call->in[0]->dims[1]) : 0;
    case NUMBER_roi_align: return has_input(call, 0, 2) ? 8 * call->in[0]->dims[1] : 0;
    case NUMBER_unique: return has_sizes(call, 1, 1) ? ht_scratch_unique(call->ints[1]) : 0;
    case NUMBER_svm_votes:
        return has_sizes(call, 0, 1) && call->ints[0] <= HT_SVM_MAX_CLASSES ? ht_scratch_svm_votes(call->ints[0]) : 0;
    case NUMBER_det:
        return has_sizes(call, 0, 1) && is_moderate(call->ints[0], call->ints[0], 1) ? ht_scratch_det(call->ints[0]) : 0;
    case NUMBER_custom:
        return (int64_t)sizeof(ht_custom_note) + (call->num_in + call->num_out) * (int64_t)sizeof(hetero_tensor);
    default: return 0;
    }
}
