/* Integer matrix multiplication: subtract_zero, pack_pairs, matmul_integer. Exact: sums are taken in 32 bits, wrapping.
 *
 * The blocking is that of gemm_micro.c: a tile's accumulators stay in registers while A's pairs are broadcast against
 * B's panels. Cost: m * n * k / 2 vector lanes; packing reads and writes k * n elements once.
 *
 * subtract_zero: out = x - zero, int16. in x, zero: int8 or uint8, both the same, broadcast to out.
 * pack_pairs: in B[batch][k][n] int16; out int16 of batch * ceil(n / 16) * 16 * 2 * ceil(k / 2) elements (see
 *   integer_micro.h). ints: batch, k, n.
 * matmul_integer: y = A x B. in: A[m][k] int16; B packed by pack_pairs. out y[batch][m][n] int32.
 *   ints: m, n, k, then the batch: d, dims[d], strides of A[d], strides of B[d] (in packed elements; 0 broadcasts).
 */
#include "broadcast.h"
#include "integer_micro.h"

#define VECTORS (HT_PANEL / VF_LANES)

HT_INLINE vi load(const int16_t *p) { return vf_bits(vf_load((const float *)(const void *)p)); }

/* A pair of A's elements, in every lane. The last of an odd k has no second. */
HT_INLINE vi pair(const int16_t *p)
{
    int32_t both;
    memcpy(&both, p, sizeof both);
    return vi_set1(both);
}

/* Rows are addressed from a pointer per three of them, as in gemm_micro.c. */
#define A_AT(i) (((i) < 3 ? a0 : (i) < 6 ? a3 : (i) < 9 ? a6 : a9) + ((i) % 3) * a_row)

HT_INLINE void tile_body(const int16_t *a0, int64_t a_row, const int16_t *b, int64_t k, int32_t *c, int64_t c_row,
                         const int32_t *bias, int64_t columns, const int rows, const int panels)
{
    const int width = panels * VECTORS;
    const int64_t panel = ht_pairs_panel(k);
    const int16_t *a3 = a0 + (rows > 3 ? 3 * a_row : 0), *a6 = a0 + (rows > 6 ? 6 * a_row : 0);
    const int16_t *a9 = a0 + (rows > 9 ? 9 * a_row : 0);
    vi acc[HT_TILE_ROWS][HT_TILE_PANELS * VECTORS];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < width; j++)
            acc[i][j] = vi_set1(bias ? bias[i] : 0);
    for (int64_t left = k / 2; left > 0; left--) {
        vi bv[HT_TILE_PANELS * VECTORS];
#pragma GCC unroll 8
        for (int j = 0; j < width; j++)
            bv[j] = load(b + j / VECTORS * panel + j % VECTORS * VF_LANES * 2);
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            const vi av = pair(A_AT(i));
#pragma GCC unroll 8
            for (int j = 0; j < width; j++)
                acc[i][j] = vi_add(acc[i][j], vi_multiply_pairs(av, bv[j]));
        }
        a0 += 2;
        a3 += 2;
        a6 += 2;
        a9 += 2;
        b += 2 * HT_PANEL;
    }
    if (k & 1) {
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            const vi av = vi_set1((uint16_t)*A_AT(i));
#pragma GCC unroll 8
            for (int j = 0; j < width; j++)
                acc[i][j] = vi_add(acc[i][j], vi_multiply_pairs(av, load(b + j / VECTORS * panel +
                                                                         j % VECTORS * VF_LANES * 2)));
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < width; j++) {
            float *to = (float *)(void *)(c + i * c_row + j * VF_LANES);
            if (HT_LIKELY(columns >= (int64_t)panels * HT_PANEL))
                vf_store(to, vi_as_float(acc[i][j]));
            else
                vf_store_n(to, ht_max64(0, ht_min64(VF_LANES, columns - j * VF_LANES)), vi_as_float(acc[i][j]));
        }
}

typedef void (*tile_fn)(const int16_t *, int64_t, const int16_t *, int64_t, int32_t *, int64_t, const int32_t *, int64_t);

#define TILE(rows, panels)                                                                                            \
    static void tile_##rows##x##panels(const int16_t *a, int64_t a_row, const int16_t *b, int64_t k, int32_t *c,      \
                                       int64_t c_row, const int32_t *bias, int64_t columns)                           \
    {                                                                                                                 \
        tile_body(a, a_row, b, k, c, c_row, bias, columns, rows, panels);                                             \
    }
#if HT_TILE_PANELS == 2
#define TILES(rows) TILE(rows, 1) TILE(rows, 2)
#define ENTRY(rows) {tile_##rows##x1, tile_##rows##x2},
#else
#define TILES(rows) TILE(rows, 1)
#define ENTRY(rows) {tile_##rows##x1},
#endif
#if HT_TILE_ROWS == 12
#define EACH(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12)
#elif HT_TILE_ROWS == 6
#define EACH(X) X(1) X(2) X(3) X(4) X(5) X(6)
#else
#define EACH(X) X(1) X(2) X(3)
#endif

EACH(TILES)

static const tile_fn tiles[HT_TILE_ROWS][HT_TILE_PANELS] = {EACH(ENTRY)};

void ht_integer_product(const int16_t *a, int64_t a_row, const int16_t *b, int64_t k, int32_t *c, int64_t c_row,
                        const int32_t *bias, int64_t rows, int64_t columns)
{
    const int64_t pair = HT_TILE_PANELS * HT_PANEL, m_step = HT_TILE_ROWS * 16;
    for (int64_t start = 0; start < rows; start += m_step) { /* rows of A that stay in L2 while B passes */
        const int64_t count = ht_min64(m_step, rows - start), num_tiles = ht_ceil_div(count, HT_TILE_ROWS);
        for (int64_t j = 0; j < columns; j += pair) {
            const int64_t width = ht_min64(pair, columns - j);
            int64_t row = start;
            for (int64_t t = 0; t < num_tiles; t++) {
                const int64_t height = count / num_tiles + (t < count % num_tiles);
                tiles[height - 1][(width - 1) / HT_PANEL](a + row * a_row, a_row, b + j / HT_PANEL * ht_pairs_panel(k), k,
                                                          c + row * c_row + j, c_row, bias ? bias + row : NULL, width);
                row += height;
            }
        }
    }
}

#define SUBTRACT(name, type)                                                                                          \
    static void name(const type *x, int64_t x_step, const type *zero, int64_t zero_step, int16_t *out, int64_t n)     \
    {                                                                                                                 \
        if (x_step == 1 && zero_step == 0)                                                                            \
            for (int64_t i = 0; i < n; i++)                                                                           \
                out[i] = (int16_t)(x[i] - zero[0]);                                                                   \
        else                                                                                                          \
            for (int64_t i = 0; i < n; i++)                                                                           \
                out[i] = (int16_t)(x[i * x_step] - zero[i * zero_step]);                                              \
    }
SUBTRACT(subtract_i8, int8_t)
SUBTRACT(subtract_u8, uint8_t)

int HT_KERNEL(subtract_zero)(const ht_call *call)
{
    ht_broadcast loops;
    if (call->num_in != 2 || call->num_out != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *x = call->in[0], *zero = call->in[1], *out = call->out[0];
    if (x->dtype != zero->dtype || (x->dtype != HT_INT8 && x->dtype != HT_UINT8) || out->dtype != HT_INT16)
        return HT_ERR_DTYPE;
    if (ht_broadcast_loops(&loops, call->in, 2, out) != HT_OK)
        return HT_ERR_OPERAND;
    if (out->size == 0)
        return HT_OK;
    int64_t index[HT_MAX_DIMS + 1] = {0}, offset[HT_MAX_BROADCAST] = {0}, n = loops.count[0];
    int16_t *y = out->data;
    do {
        if (x->dtype == HT_INT8)
            subtract_i8((const int8_t *)x->data + offset[0], loops.step[0][0], (const int8_t *)zero->data + offset[1],
                        loops.step[0][1], y, n);
        else
            subtract_u8((const uint8_t *)x->data + offset[0], loops.step[0][0],
                        (const uint8_t *)zero->data + offset[1], loops.step[0][1], y, n);
        y += n;
    } while (ht_broadcast_next(&loops, 2, index, offset));
    return HT_OK;
}

int HT_KERNEL(pack_pairs)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_ints != 3)
        return HT_ERR_OPERAND;
    const ht_tensor *b = call->in[0], *packed = call->out[0];
    const int64_t batch = call->ints[0], k = call->ints[1], n = call->ints[2];
    const int64_t panel = ht_pairs_panel(k), matrix = ht_ceil_div(n, HT_PANEL) * panel;
    if (b->dtype != HT_INT16 || packed->dtype != HT_INT16)
        return HT_ERR_DTYPE;
    if (batch < 0 || k < 0 || n < 0 || b->size != batch * k * n || packed->size != batch * matrix)
        return HT_ERR_OPERAND;
    for (int64_t i = 0; i < batch; i++)
        for (int64_t row = 0; row < k; row += 2) {
            const int16_t *first = (const int16_t *)b->data + (i * k + row) * n;
            ht_interleave_rows(first, row + 1 < k ? first + n : NULL, n,
                               (int16_t *)packed->data + i * matrix + row * HT_PANEL, panel);
        }
    return HT_OK;
}

/* Does every matrix of the batch lie inside its operand? */
static int fits(const ht_tensor *x, int64_t ndim, const int64_t *dims, const int64_t *strides, int64_t elements)
{
    int64_t last = 0;
    for (int64_t d = 0; d < ndim; d++) {
        if (dims[d] < 1 || strides[d] < 0)
            return 0;
        last += (dims[d] - 1) * strides[d];
    }
    return last + elements <= x->size;
}

int HT_KERNEL(matmul_integer)(const ht_call *call)
{
    if (call->num_in != 2 || call->num_ints < 4)
        return HT_ERR_OPERAND;
    const ht_tensor *a = call->in[0], *b = call->in[1], *y = call->out[0];
    const int64_t m = call->ints[0], n = call->ints[1], k = call->ints[2], ndim = call->ints[3];
    if (ndim < 0 || ndim > HT_MAX_DIMS || call->num_ints != 4 + 3 * ndim || m < 0 || n < 0 || k < 0)
        return HT_ERR_OPERAND;
    if (a->dtype != HT_INT16 || b->dtype != HT_INT16 || y->dtype != HT_INT32)
        return HT_ERR_DTYPE;
    const int64_t *dims = call->ints + 4, *a_strides = dims + ndim, *b_strides = a_strides + ndim;
    int64_t batch = 1, index[HT_MAX_DIMS] = {0}, a_at = 0, b_at = 0;
    for (int64_t d = 0; d < ndim; d++)
        batch *= dims[d];
    if (y->size != batch * m * n)
        return HT_ERR_OPERAND;
    if (y->size == 0)
        return HT_OK;
    if (!fits(a, ndim, dims, a_strides, m * k) ||
        !fits(b, ndim, dims, b_strides, ht_ceil_div(n, HT_PANEL) * ht_pairs_panel(k)))
        return HT_ERR_OPERAND;
    for (int64_t i = 0; i < batch; i++) {
        ht_integer_product((const int16_t *)a->data + a_at, k, (const int16_t *)b->data + b_at, k,
                           (int32_t *)y->data + i * m * n, n, NULL, m, n);
        for (int64_t d = ndim - 1; d >= 0; d--) {
            a_at += a_strides[d];
            b_at += b_strides[d];
            if (++index[d] < dims[d])
                break;
            a_at -= a_strides[d] * dims[d];
            b_at -= b_strides[d] * dims[d];
            index[d] = 0;
        }
    }
    return HT_OK;
}
