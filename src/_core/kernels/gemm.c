/* Matrix multiplication: pack_b, pack_parts, gemm, matmul.
 *
 * See gemm_micro.c for the algorithm. Sums over k are computed in blocks of at most HT_LONG_K in ascending order. So
 * results may depend on k, the instruction set and the layout of B, but never on a split of rows or columns. float32 is
 * optimized; float64, int32, uint32, int64 and uint64 (wrapping) use one plain loop.
 *
 * pack_b: in B[batch][k][n] (or [batch][n][k] when trans), float32, at any address; out packed, float32, of batch *
 *   ceil(n / 16) * 16 * k elements (see gemm_micro.h). ints: batch, k, n, trans.
 *
 * pack_parts, only with tiles (tiled_product.h): in W[batch][k][n] (or [batch][n][k] when trans), float32, at any
 *   address; scale[batch * n], by which columns (or rows) are multiplied, or NULL; out packed, float32, of batch *
 *   ht_parts_floats(k, n) elements; bool[1]: 0 if a number is too small, too large or not finite for this layout, and
 *   packed is incomplete. ints: batch, k, n, trans, 1 for a left operand with n rows, 0 for a right one with n columns.
 *
 * matmul: y = activation(alpha * A x B + beta * bias + addend), for every index of the batch.
 *   in: A[m][k] (or [k][m] when trans_a); B[k][n] (or [n][k] when trans_b, or packed); bias or NULL; addend (of y's
 *   shape) or NULL; indices or left out, only for float32: B then has as many matrices as it has elements for, the
 *   strides of B lead to an element of `indices` (int32 or int64), and that element numbers the matrix; negative ones
 *   count from the end, and one outside gives HT_ERR_INDEX.
 *   out: y[batch][m][n]. y overlaps no input.
 *   ints: m, n, k, trans_a, trans_b, b_packed (1 by pack_b, 2 by pack_parts as a right operand), bias_row, bias_col
 *   (strides of bias in elements: (0, 1) a bias per column, (1, 0) per row, (n, 1) a matrix, (0, 0) a scalar; bias_col
 *   is 0 or 1), activation (unary.h), then the batch: d, dims[d], strides of A[d], strides of B[d] (elements between
 *   matrices; 0 broadcasts; for packed B in packed elements). d may be 0.
 *   floats: alpha, beta (0: the bias is not read), activation's two parameters.
 *   scratch for float32: 0 if B is float32 packed by pack_b, else 4 * 16 * min(k * ceil(n / 16), 6144) bytes. Products
 *   of tiles (tiled_product.h) need ht_scratch_gemm_tiled more. Without them, they are not used, and B must not be by
 *   pack_parts.
 *   All operands have one type, except that packed B of float32 may be stored as float16 or bfloat16; it is widened
 *   when read. Types other than float32 support no activation and no packed B; for integers, alpha and beta must be
 *   whole numbers.
 *
 * gemm: the same without the batch (d = 0 is left out).
 */
#include "blocks.h"
#include "gemm_product.h"
#include "half_vec.h"
#include "indices.h"
#include "tiled_product.h"
#include "unary.h"

#define MOST_ROWS (512 * HT_TILE_ROWS) /* rows of a block: bounds the work between two checks for a stop */
#define SOME_COLUMNS (64 * HT_PANEL)    /* columns of a block of a product with few rows, for the same reason */
#define ROW_COLUMNS (256 * HT_PANEL)    /* the same if B is row-major: their sums stay in the L1 cache */
#define PACKING 4      /* cost of packing or widening an element of B, in reads */
#define SMALL_M 8      /* rows of A up to which packing B costs more than it saves */
#define MOST_COLUMNS 2048 /* of a block as products of bfloat16, for the same reason */

/* Floats of B in a block: a part of the L2 cache (384 kB, or 128 kB) that leaves room for A and C. */
#if defined(__AVX512F__)
#define BLOCK_FLOATS (96 * 1024)
#define SMALL_BLOCK_FLOATS (64 * 1024) /* if all of A also stays in the L2 cache: then it is read often for little */
#define MOST_FLOATS_OF_A (160 * 1024)
#else
#define BLOCK_FLOATS (32 * 1024)
#define SMALL_BLOCK_FLOATS BLOCK_FLOATS
#define MOST_FLOATS_OF_A 0
#endif
_Static_assert(BLOCK_FLOATS <= HT_GEMM_BLOCK_FLOATS, "scratch memory does not depend on the instruction set");

/* Blocks of k are of nearly equal length. */
static int64_t k_step_of(int64_t k, int64_t most) { return ht_ceil_div(k, ht_max64(1, ht_ceil_div(k, most))); }

/* Columns of a block of B: a multiple of a tile's. */
static int64_t n_step_of(int64_t k_step, int64_t floats)
{
    const int64_t tile = HT_TILE_PANELS * HT_PANEL;
    return ht_max64(1, floats / (ht_max64(1, k_step) * tile)) * tile;
}

/* Adds one block: columns from j on of all rows, terms k0 .. k0 + t->k - 1 of their sums. t: complete except A, C and
 * the epilogue. */
static void add_block(const ht_gemm_product *p, const ht_tile *block, int64_t j, int64_t columns, int64_t k0,
                      int64_t next_columns)
{
    ht_tile t = *block;
    ht_epilogue e = p->epilogue;
    t.a = p->a + k0 * p->a_k;
    t.a_row = p->a_row;
    t.a_k = p->a_k;
    t.c = p->y + j;
    t.c_row = p->n;
    t.accumulate = k0 > 0;
    if (k0 + t.k == p->k) {
        if (e.bias)
            e.bias += j * e.bias_col;
        if (e.addend)
            e.addend += j;
        t.epilogue = &e;
    }
    ht_gemm_rows(&t, p->m, columns, next_columns);
}

/* Packed float32 B, read in place. */
static void blocks_of_packed(const ht_gemm_product *p, int64_t col0, int64_t col1, int64_t *left)
{
    const int64_t floats = p->m * p->k <= MOST_FLOATS_OF_A ? SMALL_BLOCK_FLOATS : BLOCK_FLOATS;
    const int64_t k_step = k_step_of(p->k, HT_LONG_K), n_step = n_step_of(k_step, floats);
    for (int64_t j = col0, columns; j < col1; j += columns) {
        /* A few more columns than fit cost less than reading A again. */
        columns = col1 - j <= n_step + n_step / 2 ? col1 - j : n_step;
        int64_t k0 = 0;
        do {
            if (ht_paced_stop(left, p->m * columns * k_step))
                return;
            ht_tile t = {.b = p->b + j * p->k + k0 * HT_PANEL, .b_k = HT_PANEL, .b_panel = p->k * HT_PANEL,
                         .k = ht_min64(k_step, p->k - k0), .next_step = HT_PANEL, .cold = j == col0 && k0 == 0};
            int64_t next_columns = columns;
            t.next = t.b + t.k * HT_PANEL;
            if (k0 + t.k == p->k) {
                const int ends = j + columns == col1;
                t.next = ends ? p->next : p->b + (j + columns) * p->k;
                next_columns = ht_min64(n_step, ends ? p->next_columns : col1 - j - columns);
            }
            add_block(p, &t, j, columns, k0, next_columns);
            k0 += t.k;
        } while (k0 < p->k);
    }
}

static void in_blocks(const ht_gemm_product *p, int64_t col0, int64_t col1, int64_t *left)
{
    if (p->b_packed && !p->halves) {
        blocks_of_packed(p, col0, col1, left);
        return;
    }
    const int direct = !p->b_packed && !p->trans_b && p->rows <= SMALL_M;
    /* The rows of an unpacked B lie pages apart, so fewer are used at a time. */
    const int64_t k_step = k_step_of(p->k, direct ? HT_BLOCK_K : HT_LONG_K), n_step = n_step_of(k_step, BLOCK_FLOATS);
    for (int64_t j = col0; j < col1; j += n_step) {
        const int64_t columns = ht_min64(n_step, col1 - j);
        int64_t k0 = 0;
        do {
            if (ht_paced_stop(left, p->m * columns * k_step))
                return;
            ht_tile t = {.b = p->scratch, .b_k = HT_PANEL, .k = ht_min64(k_step, p->k - k0)};
            t.b_panel = t.k * HT_PANEL;
            /* B in place is read only in whole panels, since a panel's load must not pass the end of a row. */
            const int64_t whole = direct ? columns / HT_PANEL * HT_PANEL : 0;
            if (whole > 0) {
                ht_tile rows = t;
                rows.b = p->b + k0 * p->ldb + j;
                rows.b_k = p->ldb;
                rows.b_panel = HT_PANEL;
                add_block(p, &rows, j, whole, k0, 0);
            }
            if (p->halves) {
                for (int64_t panel = 0; panel < columns; panel += HT_PANEL) {
                    const uint16_t *from = p->halves + (j + panel) * p->k + k0 * HT_PANEL;
                    if (p->halves_type == HT_FLOAT16)
                        ht_widen(from, HT_FLOAT16, p->scratch + panel * t.k, t.b_panel);
                    else
                        ht_widen(from, HT_BFLOAT16, p->scratch + panel * t.k, t.b_panel);
                }
            } else if (whole < columns) {
                const float *from = p->trans_b ? p->b + j * p->ldb + k0 : p->b + k0 * p->ldb + j + whole;
                ht_pack_panels(from, p->ldb, p->trans_b, t.k, columns - whole, p->scratch, t.k);
            }
            if (whole < columns)
                add_block(p, &t, j + whole, columns - whole, k0, 0);
            k0 += t.k;
        } while (k0 < p->k);
    }
}

#if HT_TILES
_Static_assert(MOST_ROWS <= HT_TILED_MOST_ROWS, "rows of a block");
_Static_assert(HT_TILED_MOST_K <= HT_LONG_K, "add_plain multiplies a whole block of k");

/* Columns of k terms that fit p->scratch, in whole groups. */
static int64_t most_unpacked(int64_t k) { return BLOCK_FLOATS / k / HT_TILED_GROUP * HT_TILED_GROUP; }

/* Panels of `columns` columns of B from j on, terms k0 .. k0 + k - 1, as float32 in p->scratch. */
static void pack_block(const ht_gemm_product *p, int64_t j, int64_t columns, int64_t k0, int64_t k)
{
    if (p->parts) {
        const ht_lanes all = ht_lanes_of_parts(p->parts, p->k), some = ht_lanes_from(&all, j, k0);
        ht_tiled_unpack(&some, columns, k, 0, p->scratch);
        return;
    }
    if (!p->halves) {
        const float *from = p->trans_b ? p->b + j * p->ldb + k0 : p->b + k0 * p->ldb + j;
        ht_pack_panels(from, p->ldb, p->trans_b, k, columns, p->scratch, k);
        return;
    }
    for (int64_t panel = 0; panel < columns; panel += HT_PANEL)
        ht_widen(p->halves + (j + panel) * p->k + k0 * HT_PANEL, p->halves_type, p->scratch + panel * k, k * HT_PANEL);
}

/* Rows [row, row + rows) of a block of in_tiles, as float32. */
static void add_plain(const ht_gemm_product *p, int64_t row, int64_t rows, int64_t j, int64_t columns, int64_t k0, int64_t k)
{
    ht_gemm_product q = *p;
    q.m = rows;
    q.a += row * q.a_row;
    q.y += row * q.n;
    q.epilogue.bias = q.epilogue.bias ? q.epilogue.bias + row * q.epilogue.bias_row : NULL;
    q.epilogue.addend = q.epilogue.addend ? q.epilogue.addend + row * q.epilogue.addend_row : NULL;
    const int in_place = p->b_packed && !p->halves;
    const int64_t most = in_place ? columns : most_unpacked(k);
    for (int64_t from = 0; from < columns; from += most) {
        const int64_t some = ht_min64(most, columns - from);
        ht_tile t = {.b = p->scratch, .b_k = HT_PANEL, .b_panel = k * HT_PANEL, .k = k};
        if (in_place) {
            t.b = p->b + (j + from) * p->k + k0 * HT_PANEL;
            t.b_panel = p->k * HT_PANEL;
        } else {
            pack_block(p, j + from, some, k0, k);
        }
        add_block(&q, &t, j + from, some, k0, 0);
    }
}

/* As products of bfloat16 where possible. col0 and p's first row are multiples of HT_TILED_GROUP. */
static void in_tiles(const ht_gemm_product *p, int64_t col0, int64_t col1, int64_t *left)
{
    uint8_t plain[HT_TILED_MOST_ROWS / HT_TILED_GROUP];
    const ht_lanes a = {p->a, HT_PANEL * p->a_row, p->a_row, p->a_k, NULL, 0};
    const ht_lanes b = p->parts      ? ht_lanes_of_parts(p->parts, p->k)
                       : p->b_packed ? (ht_lanes){p->b, p->k * HT_PANEL, 1, HT_PANEL, NULL, 0}
                       : p->trans_b  ? (ht_lanes){p->b, p->ldb * HT_PANEL, p->ldb, 1, NULL, 0}
                                     : (ht_lanes){p->b, HT_PANEL, 1, p->ldb, NULL, 0};
    const int holds_rows = ht_tiled_holds_rows(p->rows, p->n, p->k);
    const int64_t k_step = ht_tiled_k_step(p->k, ht_tiled_most_k(holds_rows ? p->rows : p->n));
    const int64_t most = holds_rows ? MOST_COLUMNS : HT_TILED_HELD;
    const int64_t most_columns = p->halves ? ht_min64(most, most_unpacked(k_step)) : most;
    HT_ASSERT(p->m <= (holds_rows ? HT_TILED_HELD : MOST_ROWS));
    for (int64_t j = col0; j < col1; j += most_columns)
        for (int64_t k0 = 0; k0 < p->k; k0 += k_step) {
            const int64_t columns = ht_min64(most_columns, col1 - j), k = ht_min64(k_step, p->k - k0);
            if (ht_paced_stop(left, p->m * columns * k))
                return;
            ht_lanes some_b = {p->scratch, k * HT_PANEL, 1, HT_PANEL, NULL, 0};
            if (p->halves)
                pack_block(p, j, columns, k0, k);
            else
                some_b = ht_lanes_from(&b, j, k0);
            ht_epilogue e = p->epilogue;
            e.bias = e.bias ? e.bias + j * e.bias_col : NULL;
            e.addend = e.addend ? e.addend + j : NULL;
            const ht_lanes some_a = ht_lanes_from(&a, 0, k0);
            ht_tiled t;
            ht_tiled_hold(&t, holds_rows ? &some_a : &some_b, holds_rows ? p->m : columns, k, holds_rows, p->tiled);
            if (HT_UNLIKELY(ht_tiled_pass(&t, holds_rows ? &some_b : &some_a, holds_rows ? columns : p->m, p->y + j, p->n,
                                          k0 > 0, k0 + k == p->k ? &e : NULL, plain)))
                for (int64_t row = 0; row < p->m; row += HT_TILED_GROUP)
                    if (plain[row / HT_TILED_GROUP])
                        add_plain(p, row, ht_min64(HT_TILED_GROUP, p->m - row), j, columns, k0, k);
        }
}
#else
static void in_tiles(const ht_gemm_product *p, int64_t col0, int64_t col1, int64_t *left) { in_blocks(p, col0, col1, left); }
#endif

/* Columns [col0, col1) of one product; col0 is a multiple of HT_PANEL. */
static void multiply_columns(const ht_gemm_product *p, int64_t col0, int64_t col1, int64_t *left)
{
    const int in_place = !p->b_packed && !p->parts, few = p->rows <= 3 && !p->parts;
    void (*product)(const ht_gemm_product *, int64_t, int64_t) =
        few && p->b_packed                             ? ht_gemv_packed
        : in_place && p->k == 1                        ? ht_gemv_outer
        : in_place && few && p->trans_b && p->a_k == 1 ? ht_gemv_dot
        : in_place && p->rows == 1 && !p->trans_b      ? ht_gemv_rows /* with more rows, tiles are faster */
                                                       : NULL;
    const int64_t step = product == ht_gemv_rows ? ROW_COLUMNS : SOME_COLUMNS;
    if (product)
        for (int64_t from = col0; from < col1; from += step) {
            const int64_t to = ht_min64(col1, from + step);
            if (ht_paced_stop(left, p->m * (to - from) * p->k))
                return;
            product(p, from, to);
        }
    else
        (p->tiled ? in_tiles : in_blocks)(p, col0, col1, left);
    if (!ht_unary_is_clip(p->activation))
        for (int64_t i = 0; i < p->m; i++)
            ht_unary_f32(p->activation, p->p0, p->p1, p->y + i * p->n + col0, p->y + i * p->n + col0, col1 - col0);
}

int HT_KERNEL(pack_b)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_ints != 4)
        return HT_ERR_OPERAND;
    const ht_tensor *b = call->in[0], *packed = call->out[0];
    const int64_t batch = call->ints[0], k = call->ints[1], n = call->ints[2];
    const int trans = call->ints[3] != 0;
    const int64_t panel_floats = ht_ceil_div(n, HT_PANEL) * HT_PANEL * k;
    if (b->dtype != HT_FLOAT32)
        return HT_ERR_DTYPE;
    if (b->size != batch * k * n || packed->size != batch * panel_floats)
        return HT_ERR_OPERAND;
    const int64_t step = HT_PANEL * ht_max64(1, HT_PACE / HT_PANEL / ht_max64(1, k));
    for (int64_t i = 0; i < batch; i++)
        for (int64_t j = 0; j < n && !(n > step && ht_stopping()); j += step)
            ht_pack_panels((const float *)b->data + i * k * n + (trans ? j * k : j), trans ? k : n, trans, k,
                           ht_min64(step, n - j), (float *)packed->data + i * panel_floats + j * k, k);
    return HT_OK;
}

int HT_KERNEL(pack_parts)(const ht_call *call)
{
    if (!HT_TILES || call->num_in != 2 || call->num_out != 2 || call->num_ints != 5)
        return HT_ERR_OPERAND;
    const ht_tensor *w = call->in[0], *scale = call->in[1], *packed = call->out[0], *fits = call->out[1];
    const int64_t batch = call->ints[0], k = call->ints[1], n = call->ints[2], each = ht_parts_floats(k, n);
    const int trans = call->ints[3] != 0, are_rows = call->ints[4] != 0;
    if (w->dtype != HT_FLOAT32 || packed->dtype != HT_FLOAT32 || fits->dtype != HT_BOOL || (scale && scale->dtype != HT_FLOAT32))
        return HT_ERR_DTYPE;
    if (w->size != batch * k * n || packed->size != batch * each || fits->size != 1 || (scale && scale->size != batch * n))
        return HT_ERR_OPERAND;
    int all = 1;
#if HT_TILES
    for (int64_t i = 0; i < batch * n && all && !ht_stopping(); ) {
        const int64_t matrix = i / n, column = i % n, lanes = ht_min64(HT_TILED_GROUP, n - column);
        const float *from = (const float *)w->data + matrix * k * n + (trans ? column * k : column);
        const ht_lanes x = trans ? (ht_lanes){from, HT_PANEL * k, k, 1, NULL, 0} : (ht_lanes){from, HT_PANEL, 1, n, NULL, 0};
        float *to = (float *)packed->data + matrix * each + ht_parts_floats(k, column);
        all = ht_tiled_pack(&x, lanes, k, are_rows, scale ? (const float *)scale->data + i : NULL, to);
        i += lanes;
    }
#else
    (void)trans, (void)are_rows;
#endif
    *(uint8_t *)fits->data = (uint8_t)all;
    return HT_OK;
}

static int is_whole(double x) { return x >= -0x1p62 && x <= 0x1p62 && x == floor(x); }

/* The whole call. */
typedef struct {
    const ht_call *call;
    ht_gemm_product first;
    ht_batch batch;
    ht_blocks blocks;
    const ht_tensor *indices; /* NULL: B has one matrix for each stride */
    int64_t count, elements;  /* matrices of B, if there are indices, and elements of each */
    int tiled;                /* as products of bfloat16 */
    int64_t tiled_at;         /* bytes of scratch memory before what these need */
} multiplication;

/* Where the B of a matrix of the batch begins. */
static int64_t offset_of_b(const multiplication *job, int64_t matrix)
{
    const int64_t at = ht_batch_offset(&job->batch, job->batch.b_strides, matrix);
    return job->indices ? ht_index_at(job->indices, at, job->count) * job->elements : at;
}

static void multiply_part(void *context, int64_t part, int thread)
{
    const multiplication *job = (const multiplication *)context;
    const ht_blocks *blocks = &job->blocks;
    int64_t left = HT_PACE;
    const int64_t end = ht_part_begin(blocks->units, blocks->parts, part + 1);
    for (int64_t unit = ht_part_begin(blocks->units, blocks->parts, part); unit < end; unit++) {
        const ht_block block = ht_block_of(blocks, unit);
        const int64_t following = ht_next_unit(blocks->units, blocks->parts, part, unit, thread);
        ht_gemm_product p = job->first;
        p.m = block.rows;
        p.a += ht_batch_offset(&job->batch, job->batch.a_strides, block.matrix) + block.row * p.a_row;
        if (following >= 0 && p.b && p.b_packed) {
            const ht_block next = ht_block_of(blocks, following);
            p.next = p.b + offset_of_b(job, next.matrix) + next.column * p.k;
            p.next_columns = next.columns;
        }
        const int64_t b_at = offset_of_b(job, block.matrix);
        p.b = p.b ? p.b + b_at : NULL;
        p.parts = p.parts ? p.parts + b_at : NULL;
        p.halves = p.halves ? p.halves + b_at : NULL;
        const int64_t y_at = (block.matrix * p.rows + block.row) * p.n;
        p.y += y_at;
        p.epilogue.bias = p.epilogue.bias ? p.epilogue.bias + block.row * p.epilogue.bias_row : NULL;
        p.epilogue.addend = p.epilogue.addend ? p.epilogue.addend + y_at : NULL;
        p.scratch = (float *)ht_scratch(job->call, thread);
        p.tiled = job->tiled ? (char *)p.scratch + job->tiled_at : NULL;
        multiply_columns(&p, block.column, block.column + block.columns, &left);
    }
}

/* A result of one column has the same elements as the row that the transposed operands give: the old A becomes B, and is
 * read in place. Only for an unpacked B of one column without indices, and a bias with a stride of 0 or 1. */
static void make_row(ht_gemm_product *p, ht_batch *batch)
{
    const int64_t *strides = batch->a_strides;
    const float *b = p->a;
    batch->a_strides = batch->b_strides;
    batch->b_strides = strides;
    p->a = p->b;
    p->b = b;
    p->trans_b = p->a_k == 1 || p->m == 1;
    p->ldb = p->trans_b ? p->k : p->m;
    p->a_row = p->k;
    p->a_k = 1;
    p->n = p->m;
    p->m = p->rows = 1;
    p->epilogue.bias_col = p->epilogue.bias_row;
    p->epilogue.bias_row = 0;
    p->epilogue.addend_row = p->n;
}

static int multiply(const ht_call *call, ht_batch matrices)
{
    const ht_tensor *a = call->in[0], *b = call->in[1], *y = call->out[0];
    const ht_tensor *bias = call->num_in > 2 ? call->in[2] : NULL, *addend = call->num_in > 3 ? call->in[3] : NULL;
    const int64_t *ints = call->ints;
    const int trans_a = ints[3] != 0, activation = (int)ints[8];
    const double alpha = call->floats[0], beta = call->floats[1];
    ht_gemm_product p = {.m = ints[0], .rows = ints[0], .n = ints[1], .k = ints[2], .trans_b = ints[4] != 0,
                         .b_packed = ints[5] == 1, .activation = activation, .p0 = (float)call->floats[2],
                         .p1 = (float)call->floats[3]};
    p.a_row = trans_a ? 1 : p.k;
    p.a_k = trans_a ? p.m : 1;
    p.ldb = p.trans_b ? p.k : p.n;
    p.epilogue = (ht_epilogue){.bias_row = ints[6], .bias_col = ints[7], .addend_row = p.n,
                               .alpha = (float)alpha, .beta = (float)beta};
    ht_unary_clip_range(activation, p.p0, p.p1, &p.epilogue.low, &p.epilogue.high);

    const int64_t batch = ht_batch_size(&matrices);
    const int has_parts = ints[5] == 2;
    const int64_t b_elements = has_parts    ? ht_parts_floats(p.k, p.n)
                               : p.b_packed ? ht_panel_floats(p.k, p.n)
                                            : p.k * p.n;
    const ht_tensor *indices = call->num_in > 4 ? call->in[4] : NULL;
    if (y->size != batch * p.m * p.n || (addend && addend->size != y->size))
        return HT_ERR_OPERAND;
    if (indices) {
        if (y->dtype != HT_FLOAT32 || !ht_is_index_type(indices->dtype) || b_elements <= 0 || b->size % b_elements != 0)
            return HT_ERR_OPERAND;
        for (int64_t i = 0; i < indices->size; i++)
            if (ht_index_at(indices, i, b->size / b_elements) < 0)
                return HT_ERR_INDEX;
    }
    if (y->size == 0)
        return HT_OK;
    if (!ht_batch_fits(&matrices, matrices.a_strides, p.m * p.k, a->size) ||
        !ht_batch_fits(&matrices, matrices.b_strides, indices ? 1 : b_elements, indices ? indices->size : b->size) ||
        ints[6] < 0 || ints[7] < 0 || ints[7] > 1 ||
        (bias && (p.m - 1) * ints[6] + (p.n - 1) * ints[7] >= bias->size))
        return HT_ERR_OPERAND;
    const int32_t dtype = y->dtype;
    const int halved = p.b_packed && dtype == HT_FLOAT32 && (b->dtype == HT_FLOAT16 || b->dtype == HT_BFLOAT16);
    if (a->dtype != dtype || (b->dtype != dtype && !halved) || (bias && bias->dtype != dtype) ||
        (addend && addend->dtype != dtype))
        return HT_ERR_DTYPE;
    const int64_t tiled_at = p.b_packed && !halved ? 0 : ht_scratch_gemm(p.k, p.n);
    const int tiled_fits = HT_TILES && call->scratch_bytes >= tiled_at + ht_scratch_gemm_tiled(p.m, p.n, p.k);
    if (has_parts && (dtype != HT_FLOAT32 || !tiled_fits || p.k < 1))
        return HT_ERR_OPERAND;
    if (dtype == HT_FLOAT32) {
        if ((!p.b_packed || halved) && call->scratch_bytes < ht_scratch_gemm(p.k, p.n))
            return HT_ERR_OPERAND;
    } else if (p.b_packed || activation != HT_UNARY_NONE) {
        return HT_ERR_OPERAND;
    } else if (dtype != HT_FLOAT64 && (!is_whole(alpha) || !is_whole(beta))) {
        return HT_ERR_OPERAND;
    }

    if (dtype == HT_FLOAT32) {
        p.a = (const float *)a->data;
        p.b = halved || has_parts ? NULL : (const float *)b->data;
        p.parts = has_parts ? (const float *)b->data : NULL;
        p.halves = halved ? (const uint16_t *)b->data : NULL;
        p.halves_type = b->dtype;
        p.y = (float *)y->data;
        p.epilogue.bias = bias && beta != 0 ? (const float *)bias->data : NULL;
        p.epilogue.addend = addend ? (const float *)addend->data : NULL;
        const int is_column = p.n == 1 && ints[5] == 0 && !indices && p.epilogue.bias_row <= 1;
        if (is_column)
            make_row(&p, &matrices);
        multiplication job = {.call = call, .first = p, .batch = matrices, .indices = indices,
                              .count = indices ? b->size / b_elements : 0, .elements = b_elements};
        const int64_t reads = p.b_packed && !halved ? 1 : PACKING; /* cost of an element of B beside one of A */
        job.tiled_at = tiled_at;
        job.tiled = has_parts || (!is_column && tiled_fits && ht_tiled_pays(p.m, p.n, p.k));
        const double cost = (double)y->size * (double)p.k;
        job.blocks = job.tiled ? ht_divide_tiled(call, batch, p.m, p.n, p.k, MOST_ROWS, HT_TILED_ROW,
                                                 has_parts ? HT_TILED_PARTS : HT_TILED_COLUMN)
                               : ht_divide(call, batch, p.m, p.n, HT_TILE_ROWS, HT_PANEL, MOST_ROWS, cost, p.m / reads > p.n);
        ht_parallel(call->team, job.blocks.parts, multiply_part, &job);
        return HT_OK;
    }
    return ht_multiply_plain(call, &p, &matrices);
}

int HT_KERNEL(gemm)(const ht_call *call)
{
    if (call->num_in < 2 || call->num_ints != 9 || call->num_floats != 4)
        return HT_ERR_OPERAND;
    return multiply(call, (ht_batch){0});
}

int HT_KERNEL(matmul)(const ht_call *call)
{
    if (call->num_in < 2 || call->num_ints < 10 || call->num_floats != 4)
        return HT_ERR_OPERAND;
    const int64_t d = call->ints[9];
    if (d < 0 || d > HT_MAX_DIMS || call->num_ints != 10 + 3 * d)
        return HT_ERR_OPERAND;
    const int64_t *dims = call->ints + 10;
    return multiply(call, (ht_batch){d, dims, dims + d, dims + 2 * d});
}
