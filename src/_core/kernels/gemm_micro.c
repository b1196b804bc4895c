/* Micro-kernels and packing for matrix multiplication.
 *
 * The blocking is that of K. Goto and R. van de Geijn, "Anatomy of High-Performance Matrix Multiplication", ACM TOMS
 * 34(3), 2008, in the form of BLIS (van Zee and van de Geijn, ACM TOMS 41(3), 2015): one operand stays in L1 while the
 * other streams past, and the accumulators stay in registers. ht_gemm_block keeps a panel of B in L1 and streams the
 * rows of A. ht_gemm_rows keeps rows of A in L1 and streams panels of B, which come from L2 in long runs; so k may
 * exceed what L1 holds of B, and C is rarely read again for partial sums. With tiles of one panel, it takes some rows of A
 * together, so that several tiles read a panel of B while it is in a cache near the core. A is not packed: each of its elements is
 * broadcast, so its order in memory matters little. Loops over k consist of few instructions besides the multiply-adds:
 * where two threads share a core, each gets half of its decoder.
 * Cost: 2 * m * n * k operations; packing B reads and writes k * n elements once.
 */
#include "caches.h"
#include "gemm_micro.h"

#define VECTORS (HT_PANEL / VF_LANES) /* per panel */
#define LINE_VECTORS (16 / VF_LANES)  /* of a cache line */

/* Row i of a tile of A. ROW_FAR addresses it from two pointers, to rows 0 and 4: r1 and r3 are as many strides in bytes, and
 * instructions can double them. More registers for addresses would cost instructions in the loops. ROW_1 and ROW_2 are for
 * rows one and two floats apart, as of packed A and of neighboring pixels; they need one pointer. */
#define ROW_FAR(i)                                                                                                     \
    (*(const float *)((const char *)((i) < 4 ? a : a4) +                                                                \
                      ((i) % 4 == 0 ? 0 : (i) % 4 == 1 ? r1 : (i) % 4 == 2 ? 2 * r1 : r3)))
#define ROW_1(i) a[i]
#define ROW_2(i) a[2 * (i)]

#if defined(__AVX2__) && HT_TILE_PANELS == 1
#define SHORT_LOOPS 1
#define UNROLL_FETCHING _Pragma("GCC unroll 4")
#else
#define SHORT_LOOPS 0
#define UNROLL_FETCHING
#endif

/* A loop over packed B prefetches into the L1 cache what it reads this many steps later: B comes from the L2 cache, whose
 * latency the hardware prefetcher does not hide. */
#define NEAR 8
#define PREFETCH_NEAR                                                                                                  \
    _Pragma("GCC unroll 3") for (int j = 0; j < panels; j++)                                                           \
        __builtin_prefetch(b + NEAR * HT_PANEL + j * b_panel, 0, 3)

/* acc += the products of one k. */
#define TILE_STEP(ROW)                                                                                                 \
    do {                                                                                                               \
        vf bv[HT_TILE_PANELS * VECTORS];                                                                               \
        _Pragma("GCC unroll 8") for (int j = 0; j < width; j++)                                                         \
            bv[j] = vf_load(b + (j / VECTORS) * b_panel + (j % VECTORS) * VF_LANES);                                   \
        _Pragma("GCC unroll 8") for (int i = 0; i < rows; i++) {                                                        \
            const vf av = vf_set1(ROW(i));                                                                             \
            _Pragma("GCC unroll 8") for (int j = 0; j < width; j++)                                                     \
                acc[i][j] = vf_fma(av, bv[j], acc[i][j]);                                                              \
        }                                                                                                              \
    } while (0)

/* Finishes a tile that ends within a panel, vector by vector: a copy of this for each shape would take long to compile. */
static __attribute__((noinline)) void finish_edge(const ht_tile *t, const vf *sums, int64_t rows, int64_t width)
{
    const ht_epilogue *e = t->epilogue;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < width && j * VF_LANES < t->columns; j++) {
            const int64_t left = ht_min64(VF_LANES, t->columns - j * VF_LANES), at = j * VF_LANES;
            vf sum = sums[i * width + j];
            if (t->accumulate)
                sum += vf_load_n(t->c + i * t->c_row + at, left);
            if (e) {
                const int64_t row = t->row + i, column = t->column + at;
                sum *= vf_set1(e->alpha);
                if (e->bias) {
                    const float *p = e->bias + row * e->bias_row;
                    sum = vf_fma(vf_set1(e->beta), e->bias_col ? vf_load_n(p + column, left) : vf_set1(*p), sum);
                }
                if (e->addend)
                    sum += vf_load_n(e->addend + row * e->addend_row + column, left);
                sum = vf_min(vf_set1(e->high), vf_max(vf_set1(e->low), sum));
            }
            vf_store_n(t->c + i * t->c_row + at, left, sum);
        }
}

/* All k, or a turn of the steps. `advance` goes to the next k, which prefetches what is `further` floats after `next`. */
#define LOOP(ROW, advance, further)                                                                                    \
    do {                                                                                                               \
        if (next_step == 0) {                                                                                          \
            _Pragma("GCC unroll 4") for (; k > 0; k--, advance) TILE_STEP(ROW);                                        \
        }                                                                                                              \
        UNROLL_FETCHING for (; k > 0; k--, advance, next += (further))                                                 \
        {                                                                                                              \
            TILE_STEP(ROW);                                                                                            \
            __builtin_prefetch(next, 0, 2);                                                                            \
        }                                                                                                              \
    } while (0)

/* The same, but one line for SPARSE k, so that as many tiles share the prefetching: one tile alone would wait for memory. */
#define SPARSE 4
#define SPARSE_LOOP(ROW, advance)                                                                                      \
    for (; k >= SPARSE; k -= SPARSE, next += HT_PANEL) {                                                               \
        _Pragma("GCC unroll 4") for (int s = 0; s < SPARSE; s++, advance) TILE_STEP(ROW);                              \
        __builtin_prefetch(next, 0, 2);                                                                                \
    }

/* Kinds of tiles: those of ht_tile_fns, of ht_stepped_tile_fns, and of ht_gemm_rows where t->sparse is set. */
enum { CONSTANT_STEPS, VARIED_STEPS, SPARSE_FETCH };

HT_INLINE void tile_body(const ht_tile *t, const int rows, const int panels, const int kind)
{
    const int stepped = kind == VARIED_STEPS;
    vf acc[HT_TILE_ROWS][HT_TILE_PANELS * VECTORS];
    const int width = panels * VECTORS;
    const int64_t a_row = t->a_row, b_k = t->b_k, b_panel = t->b_panel;
    int64_t a_k = t->a_k;
    __asm__("" : "+r"(a_k)); /* prevents a second loop for a_k == 1, which would be no faster */
    int64_t r1 = a_row * (int64_t)sizeof(float), r3 = 3 * r1;
    const float *a = t->a, *a4 = a + 4 * a_row;
    __asm__("" : "+r"(r1), "+r"(r3), "+r"(a4)); /* or the compiler would keep a pointer for each row */
    const float *b = t->b;

#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int j = 0; j < width; j++)
            acc[i][j] = vf_set1(0.0f);

    /* C is prefetched meanwhile: stores to uncached lines would fill the store buffer at the end. If rows are not aligned to
     * lines, the tile to the left has written to the line in which a row of this tile begins; the line in which it ends is new. */
    for (int i = 0; i < rows; i++)
        for (int j = 1; j <= panels; j++)
            ht_fetch_to_write(t->c + i * t->c_row + j * HT_PANEL - 1);
    const ht_epilogue *e = t->epilogue;
    const float *const addend = e && e->addend ? e->addend + t->row * e->addend_row + t->column : NULL;
    if (addend)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < panels; j++)
                __builtin_prefetch(addend + i * e->addend_row + (j + 1) * HT_PANEL - 1, 0, 3);

    const float *next = t->next;
    const int64_t next_step = t->next_step;
    const int64_t turn = stepped ? t->num_steps : t->k;
    for (int64_t left = t->k; left > 0; left -= turn) {
        const ht_step *step = t->steps;
        int64_t k = ht_min64(turn, left);
#if SHORT_LOOPS
        /* With constant steps where there are any, few instructions of a loop move pointers. */
        if (kind == SPARSE_FETCH) {
            SPARSE_LOOP(ROW_FAR, (a += a_k, a4 += a_k, b += HT_PANEL))
            LOOP(ROW_FAR, (a += a_k, a4 += a_k, b += HT_PANEL), HT_PANEL);
        } else if (!stepped && b_k == HT_PANEL && a_k == 1)
            LOOP(ROW_FAR, (a++, a4++, b += HT_PANEL), HT_PANEL);
        else if (!stepped && b_k == HT_PANEL)
            LOOP(ROW_FAR, (a += a_k, a4 += a_k, b += HT_PANEL), HT_PANEL);
        else if (stepped && a_row == 1)
            LOOP(ROW_1, (a += step->a, b += step->b, step++), HT_PANEL);
        else if (stepped && a_row == 2)
            LOOP(ROW_2, (a += step->a, b += step->b, step++), HT_PANEL);
#elif defined(__AVX2__)
        /* Packed B. With constant steps, hardly an instruction of an unrolled loop moves a pointer. */
        if (!stepped && b_k == HT_PANEL) {
            const int64_t second = t->next_second, third = t->next_third;
            if (next_step == 0) {
#pragma GCC unroll 4
                for (; k > 0; k--, a += a_k, a4 += a_k, b += HT_PANEL) {
                    TILE_STEP(ROW_FAR);
                    PREFETCH_NEAR;
                }
            }
            if (second > 0)
                for (; k > 0; k--, a += a_k, a4 += a_k, b += HT_PANEL, next += next_step) {
                    TILE_STEP(ROW_FAR);
                    PREFETCH_NEAR;
                    __builtin_prefetch(next, 0, 2);
                    __builtin_prefetch(next + second, 0, 2);
                    __builtin_prefetch(next + third, 0, 2);
                }
            for (; k > 0; k--, a += a_k, a4 += a_k, b += HT_PANEL, next += next_step) {
                TILE_STEP(ROW_FAR);
                PREFETCH_NEAR;
                __builtin_prefetch(next, 0, 2);
            }
        }
#endif
        if (stepped)
            LOOP(ROW_FAR, (a += step->a, a4 += step->a, b += step->b, step++), next_step);
        else
            LOOP(ROW_FAR, (a += a_k, a4 += a_k, b += b_k), next_step);
    }

    float *c = t->c;
    const int64_t c_row = t->c_row;
    if (t->columns < (int64_t)panels * HT_PANEL) {
        vf sums[HT_TILE_ROWS * HT_TILE_PANELS * VECTORS];
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
            for (int j = 0; j < width; j++)
                sums[i * width + j] = acc[i][j];
        finish_edge(t, sums, rows, width);
        return;
    }
#define EACH(statement)                                                                                                \
    _Pragma("GCC unroll 12") for (int i = 0; i < rows; i++)                                                            \
        _Pragma("GCC unroll 8") for (int j = 0; j < width; j++) statement
    if (t->accumulate)
        EACH(acc[i][j] += vf_load(c + i * c_row + j * VF_LANES);)
    if (e) {
        if (e->alpha != 1) {
            const vf alpha = vf_set1(e->alpha);
            EACH(acc[i][j] *= alpha;)
        }
        if (e->bias) {
            const vf beta = vf_set1(e->beta);
            const float *const bias = e->bias + t->row * e->bias_row + t->column * e->bias_col;
            EACH({
                const float *p = bias + i * e->bias_row;
                acc[i][j] = vf_fma(beta, e->bias_col ? vf_load(p + j * VF_LANES) : vf_set1(*p), acc[i][j]);
            })
        }
        if (addend)
            EACH(acc[i][j] += vf_load(addend + i * e->addend_row + j * VF_LANES);)
        if (e->low != -INFINITY || e->high != INFINITY) {
            const vf low = vf_set1(e->low), high = vf_set1(e->high);
            EACH(acc[i][j] = vf_min(high, vf_max(low, acc[i][j]));)
        }
    }
    EACH(vf_store(c + i * c_row + j * VF_LANES, acc[i][j]);)
#undef EACH
}

#define TILE(rows, panels) \
    static void tile_##rows##x##panels(const ht_tile *t) { tile_body(t, rows, panels, CONSTANT_STEPS); }              \
    static void stepped_tile_##rows##x##panels(const ht_tile *t) { tile_body(t, rows, panels, VARIED_STEPS); }

#define TILES(rows) HT_EACH_PANELS(TILE, rows)
#define ENTRY(rows) HT_TILE_ENTRY(tile_, rows)
#define STEPPED_ENTRY(rows) HT_TILE_ENTRY(stepped_tile_, rows)

HT_EACH_HEIGHT(TILES)

const ht_tile_fn ht_tile_fns[HT_TILE_ROWS][HT_TILE_PANELS] = {HT_EACH_HEIGHT(ENTRY)};
const ht_tile_fn ht_stepped_tile_fns[HT_TILE_ROWS][HT_TILE_PANELS] = {HT_EACH_HEIGHT(STEPPED_ENTRY)};

#if SHORT_LOOPS
#define SPARSE_TILE(rows) static void sparse_tile_##rows(const ht_tile *t) { tile_body(t, rows, 1, SPARSE_FETCH); }
#define SPARSE_ENTRY(rows) sparse_tile_##rows,
HT_EACH_HEIGHT(SPARSE_TILE)
static const ht_tile_fn sparse_tile_fns[HT_TILE_ROWS] = {HT_EACH_HEIGHT(SPARSE_ENTRY)};
#define TILE_OF(t, height) ((t).sparse ? sparse_tile_fns[(height) - 1] : ht_tile_fns[(height) - 1][0])
#else
#define TILE_OF(t, height) ht_tile_fns[(height) - 1][((t).columns - 1) / HT_PANEL]
#endif

/* Floats of B that stay in the L1 cache (32 kB) while the rows of A stream past. */
#define STRIP_FLOATS 8192

#if HT_QUADS
/* With packed A, tiles of four rows by three vectors fill 16 registers, and eight rows 32: a panel of 16 rows divides
 * evenly by four and eight, not by six, and seven loads serve twelve multiply-adds. All operands step by HT_PANEL floats
 * per k. Columns are counted in vectors, so only the last vector is padded. */
#define QUAD_VECTORS 3
#if defined(__AVX512F__)
#define QUAD 8
#define QUAD_ROWS QUAD                          /* take a strip of B in turn; B streams from the L2 cache past a panel of A */
#define QUAD_STRIP (HT_BLOCK_N * HT_LONG_K)     /* floats of B: all */
#else
#define QUAD 4
#define QUAD_ROWS HT_PANEL                      /* so that a strip is read from the L2 cache once for four tiles */
#define QUAD_STRIP 3072                         /* these stay in the L1 cache beside a panel of A */
#endif
#define PANEL_VECTORS (HT_PANEL / VF_LANES)
#define L1_LINES 512 /* of the L1 cache */

/* Tiles of rows [row, row_end) and vectors [v, v_end), row after row. `a` is a panel, and c, bias (a step of bias_row) and addend
 * belong to its first row. Without `finishes`, C gets bare sums. from: of tiles that pack B only, its first row in place. */
typedef struct {
    const float *a, *from;
    float *b, *c;
    const float *bias, *addend;
    const float *next; /* of the panel of A after this one, each tile prefetches `fetch` more lines into the L2 cache */
    int64_t row, row_end, v, v_end, vectors, last; /* vectors: of B; last: columns in the last one */
    int64_t b_panel, from_row, c_row, bias_row, addend_row, k, fetch;
    float low, high;
    int accumulate, finishes;
    int near; /* B comes from the L2 cache; otherwise it stays in the L1 cache, beside a panel of A */
} quads;

/* Finishes `rows` rows of `width` vectors, the last of them of `last` columns, from row `row` and vector `at` on. */
HT_INLINE void quad_finish(const quads *q, vf acc[QUAD][QUAD_VECTORS], int64_t row, int64_t at, const int rows,
                           const int width, int64_t last)
{
#define AT(pointer, stride) (pointer) + (row + r) * (stride) + (at + j) * VF_LANES
#define LOAD(p) (j + 1 < width || last == VF_LANES ? vf_load(p) : vf_load_n(p, last))
#define EACH                                                                                                          \
    _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)                                                            \
        _Pragma("GCC unroll 3") for (int j = 0; j < width; j++)
    if (q->accumulate)
        EACH acc[r][j] += LOAD(AT(q->c, q->c_row));
    if (q->finishes) {
        const vf low = vf_set1(q->low), high = vf_set1(q->high);
        if (q->bias)
            EACH acc[r][j] += vf_set1(q->bias[(row + r) * q->bias_row]);
        if (q->addend)
            EACH acc[r][j] += LOAD(AT(q->addend, q->addend_row));
        if (q->low > -INFINITY)
            EACH acc[r][j] = vf_max(low, acc[r][j]);
        if (q->high < INFINITY)
            EACH acc[r][j] = vf_min(high, acc[r][j]);
    }
    EACH {
        if (j + 1 < width || last == VF_LANES)
            vf_store(AT(q->c, q->c_row), acc[r][j]);
        else
            vf_store_n(AT(q->c, q->c_row), last, acc[r][j]);
    }
#undef EACH
#undef LOAD
#undef AT
}

/* The same for a tile at the edge of C, vector by vector. */
static __attribute__((noinline)) void quad_finish_edge(const quads *q, const vf *sums, int64_t first, int64_t v,
                                                       int64_t width)
{
    for (int64_t row = first; row < ht_min64(first + QUAD, q->row_end); row++)
        for (int64_t at = 0; at < width; at++) {
            vf one[QUAD][QUAD_VECTORS] = {{sums[(row - first) * QUAD_VECTORS + at]}};
            quad_finish(q, one, row, v + at, 1, 1, v + at + 1 < q->vectors ? VF_LANES : q->last);
        }
}

/* A tile. packs: reads B from q->from and writes it to q->b. Its rows are too many for the hardware to prefetch, so each step
 * prefetches as much of the next tile as it reads. */
HT_INLINE void quad_tile(quads *q, int64_t row, int64_t v, const int width, const int packs)
{
    vf acc[QUAD][QUAD_VECTORS];
    const float *a = q->a + row, *from = packs ? q->from + v * VF_LANES : NULL;
#define PANEL_AT(j) (q->b + (v + (j)) / PANEL_VECTORS * q->b_panel + (v + (j)) % PANEL_VECTORS * VF_LANES)
    float *const b0 = PANEL_AT(0), *const b1 = PANEL_AT(1), *const b2 = PANEL_AT(2);
#undef PANEL_AT
    const int64_t from_row = q->from_row;
#pragma GCC unroll 8
    for (int r = 0; r < QUAD; r++)
#pragma GCC unroll 3
        for (int j = 0; j < width; j++)
            acc[r][j] = vf_set1(0.0f);
    /* C and the addend are prefetched meanwhile, because a tile ends before the hardware would notice their rows. The addresses
     * are those of the last elements, as in tile_body. */
    float *const c = q->c + row * q->c_row + v * VF_LANES;
    const float *const addend = q->addend ? q->addend + row * q->addend_row + v * VF_LANES : NULL;
#pragma GCC unroll 8
    for (int r = 0; r < QUAD; r++)
#pragma GCC unroll 3
        for (int j = 0; j < width; j += LINE_VECTORS) {
            const int last = (j + LINE_VECTORS < width ? j + LINE_VECTORS : width) * VF_LANES - 1;
            ht_fetch_to_write(c + r * q->c_row + last);
            if (addend)
                __builtin_prefetch(addend + r * q->addend_row + last, 0, 3);
        }
    const int64_t end = q->k * HT_PANEL, fetch = q->fetch * HT_PANEL;
    const float *const next = q->next;
    q->next += fetch;
    int64_t i = 0;
#define B_AT(j) (packs ? from + (j) * VF_LANES : (j) == 0 ? b0 + i : (j) == 1 ? b1 + i : b2 + i)
#define STEP                                                                                                          \
    do {                                                                                                              \
        const vf bv[QUAD_VECTORS] = {vf_load(B_AT(0)), width > 1 ? vf_load(B_AT(1)) : vf_set1(0.0f),                  \
                                     width > 2 ? vf_load(B_AT(2)) : vf_set1(0.0f)};                                   \
        if (packs) {                                                                                                  \
            vf_store(b0 + i, bv[0]);                                                                                  \
            if (width > 1)                                                                                            \
                vf_store(b1 + i, bv[1]);                                                                              \
            if (width > 2)                                                                                            \
                vf_store(b2 + i, bv[2]);                                                                              \
            for (int j = 0; j < width; j += 16 / VF_LANES)                                                            \
                __builtin_prefetch(from + (width + j) * VF_LANES, 0, 3);                                              \
            from += from_row;                                                                                         \
        }                                                                                                             \
        _Pragma("GCC unroll 8") for (int r = 0; r < QUAD; r++) {                                                      \
            const vf av = vf_set1(a[i + r]);                                                                          \
            _Pragma("GCC unroll 3") for (int j = 0; j < width; j++)                                                   \
                acc[r][j] = vf_fma(av, bv[j], acc[r][j]);                                                             \
        }                                                                                                             \
    } while (0)
#define FETCH_NEAR                                                                                                    \
    do {                                                                                                              \
        __builtin_prefetch(b0 + i + NEAR * HT_PANEL, 0, 3);                                                           \
        if (width > 1)                                                                                                \
            __builtin_prefetch(b1 + i + NEAR * HT_PANEL, 0, 3);                                                       \
        if (width > 2)                                                                                                \
            __builtin_prefetch(b2 + i + NEAR * HT_PANEL, 0, 3);                                                       \
    } while (0)
    const int near = PANEL_VECTORS == 1 && !packs && q->near;
    if (near)
        for (; i < fetch; i += HT_PANEL) {
            STEP;
            FETCH_NEAR;
            __builtin_prefetch(next + i, 0, 2);
        }
    for (; i < fetch; i += HT_PANEL) {
        STEP;
        __builtin_prefetch(next + i, 0, 2);
    }
    if (near)
#pragma GCC unroll 4
        for (; i < end; i += HT_PANEL) {
            STEP;
            FETCH_NEAR;
        }
#pragma GCC unroll 4
    for (; i < end; i += HT_PANEL)
        STEP;
#undef FETCH_NEAR
#undef STEP
#undef B_AT
    if (HT_LIKELY(q->row_end - row >= QUAD && (v + width < q->vectors || q->last == VF_LANES))) {
        quad_finish(q, acc, row, v, QUAD, width, VF_LANES);
        return;
    }
    vf sums[QUAD * QUAD_VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < QUAD; r++)
#pragma GCC unroll 3
        for (int j = 0; j < width; j++)
            sums[r * QUAD_VECTORS + j] = acc[r][j];
    quad_finish_edge(q, sums, row, v, width);
}

HT_INLINE void quad_tiles(quads *q, const int width, const int packs)
{
    for (int64_t row = q->row; row < q->row_end; row += QUAD)
        for (int64_t v = q->v; v < q->v_end; v += width)
            quad_tile(q, row, v, width, packs);
}

#define QUAD_FNS(width)                                                                                               \
    static __attribute__((noinline)) void quads_##width(quads *q) { quad_tiles(q, width, 0); }                        \
    static __attribute__((noinline)) void packing_quads_##width(quads *q) { quad_tiles(q, width, 1); }
QUAD_FNS(1) QUAD_FNS(2) QUAD_FNS(3)

/* The last columns, if they fill no more than half a vector: then vectors of rows take fewer multiply-adds than a padded
 * vector of columns. A plane of an odd number of rows and columns leaves one. The products of a sum and their order are
 * the same. */
#define REST 4
#define REST_DEPTH 384
#define REST_PANELS(columns) ((columns) == 1 ? 8 / PANEL_VECTORS : (columns) == 2 ? 4 / PANEL_VECTORS : 2 / PANEL_VECTORS)

/* `panels` panels of rows of A times `columns` columns; b: row-major. Several panels hide the latency of multiply-adds. */
HT_INLINE void rest_body(const quads *q, const float *b, int64_t a_panel, int64_t rows, const int panels,
                         const int columns)
{
    vf acc[8][PANEL_VECTORS][REST];
#define EACH(statement)                                                                                               \
    _Pragma("GCC unroll 8") for (int p = 0; p < panels; p++)                                                          \
        _Pragma("GCC unroll 2") for (int v = 0; v < PANEL_VECTORS; v++)                                             \
            _Pragma("GCC unroll 4") for (int j = 0; j < columns; j++) statement
    EACH(acc[p][v][j] = vf_set1(0.0f);)
    const float *a = q->a;
#pragma GCC unroll 4
    for (int64_t i = 0; i < q->k; i++, a += HT_PANEL, b += columns)
        EACH(acc[p][v][j] = vf_fma(vf_load(a + p * a_panel + v * VF_LANES), vf_set1(b[j]), acc[p][v][j]);)
    float sums[REST][8 * HT_PANEL];
    EACH(vf_store(sums[j] + p * HT_PANEL + v * VF_LANES, acc[p][v][j]);)
#undef EACH
    for (int64_t row = 0; row < rows; row++)
#pragma GCC unroll 4
        for (int j = 0; j < columns; j++) {
            float *c = q->c + row * q->c_row + j, sum = sums[j][row];
            if (q->accumulate)
                sum += *c;
            if (q->finishes) {
                if (q->bias)
                    sum += q->bias[row * q->bias_row];
                if (q->addend)
                    sum += q->addend[row * q->addend_row + j];
                sum = q->low > sum ? q->low : sum; /* keeps NaN */
                sum = q->high < sum ? q->high : sum;
            }
            *c = sum;
        }
}

#define REST_FN(name, panels, columns)                                                                                \
    static __attribute__((noinline)) void name(const quads *q, const float *b, int64_t a_panel, int64_t rows)           \
    {                                                                                                                 \
        rest_body(q, b, a_panel, rows, panels, columns);                                                              \
    }
#define REST_FNS(columns)                                                                                             \
    REST_FN(rest_some_##columns, REST_PANELS(columns), columns)                                                       \
    REST_FN(rest_one_##columns, 1, columns)
REST_FNS(1) REST_FNS(2) REST_FNS(3) REST_FNS(4)

/* ht_gemm_block for packed A and an epilogue without alpha, beta or a bias per column. from: NULL, or the rows, from_row
 * apart, of a B that the first tiles of rows pack; then t->b is written. */
static void gemm_packed(const ht_tile *t, int64_t a_panel, int64_t rows, int64_t columns, const float *from,
                        int64_t from_row)
{
    static void (*const tiles[2][QUAD_VECTORS])(quads *) = {
        {quads_1, quads_2, quads_3}, {packing_quads_1, packing_quads_2, packing_quads_3}};
    static const struct {
        void (*one)(const quads *, const float *, int64_t, int64_t), (*some)(const quads *, const float *, int64_t, int64_t);
        int64_t panels; /* of rows, by `some` */
    } rests[REST] = {{rest_one_1, rest_some_1, REST_PANELS(1)},
                     {rest_one_2, rest_some_2, REST_PANELS(2)},
                     {rest_one_3, rest_some_3, REST_PANELS(3)},
                     {rest_one_4, rest_some_4, REST_PANELS(4)}};
    const ht_epilogue none = {0}, *e = t->epilogue ? t->epilogue : &none;
    const int64_t left = columns % VF_LANES, rest = left <= REST && t->k <= REST_DEPTH ? left : 0;
    const int64_t vectors = ht_ceil_div(columns - rest, VF_LANES), whole = columns - rest;
    quads q = {.b = (float *)(uintptr_t)t->b, .from = from, .vectors = vectors, .last = whole - (vectors - 1) * VF_LANES,
               .b_panel = t->b_panel, .from_row = from_row, .c_row = t->c_row, .bias_row = e->bias_row,
               .addend_row = e->addend_row, .k = t->k, .low = e->low, .high = e->high, .accumulate = t->accumulate,
               .finishes = t->epilogue != NULL};
    /* The first `packing` vectors are packed by tiles. Those read whole vectors, so columns of the last tile, if it has
     * others too, and of the rest are packed first, in whole panels. */
    const int64_t last_tile = vectors > QUAD_VECTORS && vectors % QUAD_VECTORS > 0 ? 2 : ht_min64(vectors, QUAD_VECTORS);
    const int64_t packing = !from ? 0 : whole % VF_LANES == 0 ? vectors : vectors - last_tile;
    const int64_t first_panel = packing / PANEL_VECTORS;
    if (from && packing * VF_LANES < columns)
        ht_pack_panels(from + first_panel * HT_PANEL, from_row, 0, t->k, columns - first_panel * HT_PANEL,
                       q.b + first_panel * t->b_panel, t->b_panel / HT_PANEL);
    float b[REST * REST_DEPTH];
    for (int64_t i = 0; i < t->k && rest > 0; i++)
        for (int64_t j = 0; j < rest; j++)
            b[i * rest + j] = t->b[whole / HT_PANEL * t->b_panel + i * HT_PANEL + whole % HT_PANEL + j];
    /* Rows are taken by as many panels as the rest takes, so that it finds them in the L1 cache. */
    const int64_t together = rest > 0 ? rests[rest - 1].panels * HT_PANEL : rows;
    q.near = t->k * (QUAD_VECTORS + 1) >= L1_LINES && t->k * (vectors + 1) > L1_LINES;
    /* Twice two vectors rather than three and one: four sums cannot hide the latency of multiply-adds. */
    const int64_t triples = vectors % QUAD_VECTORS == 1 ? ht_max64(0, vectors - 4) : vectors - vectors % QUAD_VECTORS;
    const int64_t strip = ht_max64(1, QUAD_STRIP / (QUAD_VECTORS * VF_LANES * ht_max64(1, t->k))) * QUAD_VECTORS;
    const int64_t across = ht_max64(1, ht_ceil_div(vectors, QUAD_VECTORS)); /* tiles */
    /* Weights come from memory or the L3 cache, so each panel is prefetched while the one before is in use: all tiles of a panel
     * take equal parts. */
    const int64_t share = ht_ceil_div(t->k, HT_PANEL / QUAD * across);
    for (int64_t first = 0; first < rows; first += together) {
        const int64_t end = ht_min64(rows, first + together);
        for (int64_t row0 = first, row1; row0 < end; row0 = row1) {
            row1 = ht_min64(end, row0 + QUAD_ROWS);
            const int64_t panel = row0 / HT_PANEL, top = panel * HT_PANEL;
            const float *const next = top + HT_PANEL < rows ? t->a + (panel + 1) * a_panel : t->next;
            q.a = t->a + panel * a_panel;
            q.bias = e->bias ? e->bias + top * e->bias_row : NULL;
            q.c = t->c + top * t->c_row;
            q.addend = e->addend ? e->addend + top * e->addend_row : NULL;
            q.fetch = next ? share : 0;
            q.next = next ? next + (row0 - top) / QUAD * across * share * HT_PANEL : t->a;
            for (int64_t v0 = 0, v1; v0 < vectors; v0 = v1) {
                const int64_t width = v0 < triples ? QUAD_VECTORS : vectors - v0 == 1 ? 1 : 2;
                v1 = v0 < triples ? ht_min64(triples, v0 + strip) : vectors;
                for (int64_t row = row0; row < row1; row = top + q.row_end) {
                    const int packs = row == 0 && packing > v0;
                    const int64_t packed_end = packs ? ht_min64(packing, v1) : v0;
                    q.row = row - top;
                    q.row_end = packs ? ht_min64(QUAD, row1) : row1 - top;
                    if (packs) {
                        q.v = v0;
                        q.v_end = packed_end;
                        tiles[1][width - 1](&q);
                    }
                    q.v = packed_end;
                    q.v_end = v1;
                    tiles[0][width - 1](&q);
                }
            }
        }
        if (rest == 0)
            continue;
        const int64_t step = end - first > together - HT_PANEL ? together : HT_PANEL;
        for (int64_t row = first; row < end; row += step) {
            q.a = t->a + row / HT_PANEL * a_panel;
            q.bias = e->bias ? e->bias + row * e->bias_row : NULL;
            q.c = t->c + row * t->c_row + whole;
            q.addend = e->addend ? e->addend + row * e->addend_row + whole : NULL;
            (step == together ? rests[rest - 1].some : rests[rest - 1].one)(&q, b, a_panel, ht_min64(step, end - row));
        }
    }
}
#endif

void ht_gemm_block(const ht_tile *origin, int64_t a_panel, int64_t rows, int64_t columns)
{
#if HT_QUADS
    const ht_epilogue *e = origin->epilogue;
    const int simple = !e || (e->bias_col == 0 && e->alpha == 1 && e->beta == 1);
    if (a_panel > 0 && origin->b_k == HT_PANEL && origin->next_step == 0 && simple) {
        gemm_packed(origin, a_panel, rows, columns, NULL, 0);
        return;
    }
#endif
    const int64_t chunk = a_panel ? HT_PANEL : rows, width = HT_TILE_PANELS * HT_PANEL;
    /* With a short k the panels of several tiles fit, so that C is written in longer runs. */
    const int64_t strip = ht_max64(1, STRIP_FLOATS / ht_max64(1, origin->k * width)) * width;
    for (int64_t j0 = 0, strip_columns; j0 < columns; j0 += strip_columns) {
        strip_columns = ht_next_columns(columns - j0, strip);
        for (int64_t start = 0; start < rows; start += chunk) {
            const int64_t count = ht_min64(chunk, rows - start), tiles = ht_ceil_div(count, HT_TILE_ROWS);
            const int64_t base = count / tiles, extra = count % tiles;
            int64_t row = start;
            for (int64_t tile = 0; tile < tiles; tile++) {
                const int64_t height = base + (tile < extra);
                const int64_t ahead = start == 0 && tile < HT_TILE_PANELS ? origin->next_step : 0;
                ht_tile t = *origin;
                t.a += start / HT_PANEL * a_panel + (row - start * (a_panel > 0)) * t.a_row;
                for (int64_t j = j0; j < j0 + strip_columns; j += t.columns) {
                    t.columns = ht_next_columns(j0 + strip_columns - j, width);
                    t.b = origin->b + (j / HT_PANEL) * t.b_panel;
                    t.c = origin->c + row * t.c_row + j;
                    /* The first tiles of a strip of panels prefetch the next strip. */
                    const int64_t panels = ht_ceil_div(t.columns, HT_PANEL);
                    const float *next = j + t.columns < columns ? t.b + panels * t.b_panel : origin->next;
                    t.next = ahead && next ? next + tile * t.b_panel : t.b;
                    t.next_step = ahead && next ? ahead : 0;
                    t.row = row;
                    t.column = j;
                    ht_tile_fns[height - 1][panels - 1](&t);
                }
                row += height;
            }
        }
    }
}

void ht_gemm_packing(const ht_tile *origin, const float *b, int64_t ldb, float *packed, int64_t a_panel, int64_t rows,
                     int64_t columns)
{
    ht_tile t = *origin;
    t.b = packed;
    t.b_k = HT_PANEL;
    t.b_panel = t.k * HT_PANEL;
#if HT_QUADS
    const ht_epilogue *e = t.epilogue;
    if (!e || (e->bias_col == 0 && e->alpha == 1 && e->beta == 1)) {
        gemm_packed(&t, a_panel, rows, columns, b, ldb);
        return;
    }
#endif
    ht_pack_panels(b, ldb, 0, t.k, columns, packed, t.k);
    ht_gemm_block(&t, a_panel, rows, columns);
}

/* Would the rows of a tile of A evict each other from the L1 cache? They do if they lie a multiple of 4096 bytes apart:
 * all their lines in use then belong to one set. A set of 12 lines (Intel since Ice Lake, AMD since Zen 5) holds them and
 * those of B; for one of 8, they are copied, which takes an eighth of the time of a product. */
#if HT_TILE_ROWS > 6
#define ROOMY_WAYS 12
static int rows_collide(int64_t a_row, int64_t a_k, int64_t height)
{
    const int64_t apart = a_row * (int64_t)sizeof(float) % 4096;
    return a_k == 1 && height > 6 && ht_min64(apart, 4096 - apart) < 8 && ht_l1_ways() < ROOMY_WAYS;
}
#define COPY_FLOATS (HT_TILE_ROWS * (HT_LONG_K + 2 * HT_PANEL))
#else
static int rows_collide(int64_t a_row, int64_t a_k, int64_t height)
{
    (void)a_row, (void)a_k, (void)height;
    return 0;
}
#define COPY_FLOATS 1
#endif

/* Sets what tile t prefetches. While B comes from memory, a tile of rows prefetches the next tile of columns. Otherwise the
 * tiles of rows divide the corresponding panels of the next block among themselves, so that memory is read all the time:
 * of two tiles of rows, each takes a second panel in every other tile of columns. With tiles of one panel, each of SPARSE
 * tiles of rows takes a part of that panel. */
static void prefetch_next(ht_tile *t, const ht_tile *origin, int64_t tiles, int64_t tile, int64_t j, int64_t columns,
                          int64_t next_columns)
{
    const int from_memory = tiles == 1 || origin->cold;
    t->next = t->b;
    t->next_step = t->next_second = t->next_third = 0;
    t->sparse = 0;
    const int sparse = SHORT_LOOPS && origin->b_k == HT_PANEL && tile >= from_memory && tiles - from_memory >= SPARSE;
    if (origin->next_step == 0 || tile >= from_memory + (sparse ? SPARSE : HT_TILE_PANELS))
        return;
    const int within = from_memory && tile == 0 && j + t->columns < columns;
    const float *from = within ? origin->b : origin->next;
    int64_t panel = within ? (j + t->columns) / HT_PANEL : 0, panels = HT_TILE_PANELS;
    if (!from_memory || tile > 0) {
        const int64_t share = sparse ? 0 : tile - from_memory, shares = ht_min64(tiles - from_memory, HT_TILE_PANELS);
        const int64_t rest = j / HT_PANEL % (2 * HT_TILE_PANELS) < HT_TILE_PANELS ? shares - 1 : 0;
        const int64_t first = (share * HT_TILE_PANELS + rest) / shares, end = ((share + 1) * HT_TILE_PANELS + rest) / shares;
        panel = j / HT_PANEL + first;
        panels = share < shares ? end - first : 0;
    }
    panels = ht_min64(panels, ht_ceil_div(within ? columns : next_columns, HT_PANEL) - panel);
    t->next_step = origin->next_step > 0 && panels > 0 ? HT_PANEL : 0;
    t->next = t->next_step > 0 ? from + panel * origin->b_panel : t->b;
    t->sparse = sparse && t->next_step > 0;
    if (t->sparse)
        t->next += (tile - from_memory) * (t->k / SPARSE) * HT_PANEL;
    t->next_second = panels > 1 ? origin->b_panel : 0;
    t->next_third = panels > 2 ? 2 * origin->b_panel : t->next_second;
}

/* Tiles of rows that take each panel of B in turn: their rows of A fit the L2 cache beside a block of B. */
#define TOGETHER_FLOATS (18 * 1024)
static int64_t rows_together(int64_t k)
{
    return HT_TILE_PANELS == 1 ? ht_max64(1, TOGETHER_FLOATS / (HT_TILE_ROWS * ht_max64(1, k))) : 1;
}

void ht_gemm_rows(const ht_tile *origin, int64_t rows, int64_t columns, int64_t next_columns)
{
    const int64_t width = HT_TILE_PANELS * HT_PANEL;
    const int64_t tiles = ht_ceil_div(rows, HT_TILE_ROWS), base = rows / tiles, extra = rows % tiles;
    const int64_t k = origin->k, copied_row = ht_ceil_div(k, HT_PANEL) * HT_PANEL + HT_PANEL, together = rows_together(k);
    const int copies = rows_collide(origin->a_row, origin->a_k, base + (extra > 0));
    float copied[COPY_FLOATS] __attribute__((aligned(64)));
    _Static_assert(COPY_FLOATS == 1 || HT_TILE_PANELS > 1, "copies are of the only tile of a group");
    for (int64_t first = 0; first < tiles; first += together) {
        const int64_t end = ht_min64(tiles, first + together);
        ht_tile t = *origin;
        int64_t fetched = 0, height = base + (first < extra);
        const float *a = origin->a + (first * base + ht_min64(first, extra)) * origin->a_row;
        if (copies) {
            for (int64_t i = 0; i < height; i++)
                memcpy(copied + i * copied_row, a + i * origin->a_row, (size_t)k * sizeof(float));
            t.a_row = copied_row;
        }
        for (int64_t j = 0; j < columns; j += t.columns) {
            t.columns = ht_next_columns(columns - j, width);
            t.b = origin->b + j / HT_PANEL * origin->b_panel;
            t.column = j;
            /* Rows that are about to be copied are too short for the hardware prefetcher. */
            if (copies && end < tiles)
                for (const int64_t some = (j + t.columns) * HT_TILE_ROWS / columns; fetched < some; fetched++)
                    for (int64_t i = 0; i < k; i += HT_PANEL)
                        __builtin_prefetch(a + (height + fetched) * origin->a_row + i, 0, 2);
            for (int64_t tile = first; tile < end; tile++) {
                const int64_t row = tile * base + ht_min64(tile, extra);
                height = base + (tile < extra);
                t.a = copies ? copied : origin->a + row * origin->a_row;
                t.c = origin->c + row * origin->c_row + j;
                prefetch_next(&t, origin, tiles, tile, j, columns, next_columns);
                t.row = row;
                TILE_OF(t, height)(&t);
            }
        }
    }
}

/* to[d][r] = from[r][d] for d < depth and all r < VF_LANES; rows from `rows` on count as zeros. */
HT_INLINE void transpose_block(const float *from, int64_t row, int64_t rows, int64_t depth, float *to)
{
    vf block[VF_LANES];
#pragma GCC unroll 16
    for (int r = 0; r < VF_LANES; r++)
        block[r] = r >= rows ? vf_set1(0.0f) : depth == VF_LANES ? vf_load(from + r * row) : vf_load_n(from + r * row, depth);
    vf_transpose(block);
#pragma GCC unroll 16
    for (int d = 0; d < VF_LANES; d++)
        if (d < depth)
            vf_store(to + d * HT_PANEL, block[d]);
}

static __attribute__((noinline)) void transpose_part(const float *from, int64_t row, int64_t rows, int64_t depth,
                                                     float *to)
{
    transpose_block(from, row, rows, depth, to);
}

/* Several rows at a time are read along whole panels, so that the hardware prefetches them: rows may lie pages apart. */
static void pack_rows(const float *b, int64_t ldb, int64_t k, int64_t panels, float *dst, int64_t panel_k)
{
    enum { TOGETHER = 4 };
    for (int64_t i = 0; i < k; i += TOGETHER) {
        const int64_t rows = ht_min64(TOGETHER, k - i);
        for (int64_t j = 0; j < panels; j++) {
            const float *src = b + i * ldb + j * HT_PANEL;
            float *to = dst + (j * panel_k + i) * HT_PANEL;
            for (int64_t r = 0; r < rows; r++, src += ldb, to += HT_PANEL) {
                __builtin_prefetch(src + TOGETHER * ldb, 0, 3);
                for (int v = 0; v < HT_PANEL; v += VF_LANES)
                    vf_store(to + v, vf_load(src + v));
            }
        }
    }
}

void ht_pack_panels(const float *b, int64_t ldb, int trans, int64_t k, int64_t n, float *dst, int64_t panel_k)
{
    int64_t j = 0;
    if (!trans) {
        pack_rows(b, ldb, k, n / HT_PANEL, dst, panel_k);
        j = n / HT_PANEL * HT_PANEL;
        dst += j * panel_k;
    }
    for (; j < n; j += HT_PANEL, dst += panel_k * HT_PANEL) {
        const int64_t columns = ht_min64(n - j, HT_PANEL);
        if (!trans) {
            const float *src = b + j;
            for (int64_t i = 0; i < k; i++, src += ldb)
                for (int v = 0; v < HT_PANEL; v += VF_LANES) {
                    const int64_t left = ht_max64(0, ht_min64(VF_LANES, columns - v));
                    vf_store(dst + i * HT_PANEL + v, left > 0 ? vf_load_n(src + v, left) : vf_set1(0.0f));
                }
        } else {
            const float *src = b + j * ldb;
            for (int64_t i = 0; i < k; i += VF_LANES)
                for (int c = 0; c < HT_PANEL; c += VF_LANES) {
                    const float *from = src + c * ldb + i;
                    float *to = dst + i * HT_PANEL + c;
                    if (HT_LIKELY(i + VF_LANES <= k && c + VF_LANES <= columns))
                        transpose_block(from, ldb, VF_LANES, VF_LANES, to);
                    else
                        transpose_part(from, ldb, ht_max64(0, columns - c), ht_min64(VF_LANES, k - i), to);
                }
        }
    }
}
