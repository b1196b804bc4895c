/* Products of one to three rows, which read B once: see gemm_product.h.
 *
 * A packed B is read panel by panel, and a row-major one row by row; each row of a transposed B is multiplied by each row
 * of A. Cost: reading B. */
#include "gemm_product.h"
#include "half_vec.h"

/* alpha * sum + beta * bias + addend, clipped, in columns j .. j + left - 1 of row i. */
HT_INLINE void write_sums(const ht_gemm_product *p, int64_t i, int64_t j, int64_t left, vf sum)
{
    const ht_epilogue *e = &p->epilogue;
    sum *= vf_set1(e->alpha);
    if (e->bias) {
        const float *bias = e->bias + i * e->bias_row;
        sum = vf_fma(vf_set1(e->beta), e->bias_col ? vf_load_n(bias + j, left) : vf_set1(*bias), sum);
    }
    if (e->addend)
        sum += vf_load_n(e->addend + i * e->addend_row + j, left);
    vf_store_n(p->y + i * p->n + j, left, vf_min(vf_set1(e->high), vf_max(vf_set1(e->low), sum)));
}

/* One to three rows times packed B. Memory bandwidth is the limit, so each panel is read front to back with `unroll`
 * independent sums over k. With few registers per row, two panels share the broadcast elements of A; the sums are the
 * same either way. */
HT_INLINE void gemv_panels(const ht_gemm_product *p, const int rows, const int panels, const int unroll, int64_t column,
                           const int32_t type)
{
    enum { VECTORS = HT_PANEL / VF_LANES };
    vf acc[3][8][2 * VECTORS];
    const int width = panels * VECTORS;
    const int64_t next = p->k * HT_PANEL;
    const float *a = p->a, *panel = type == HT_FLOAT32 ? p->b + column * p->k : NULL;
    const uint16_t *halves = type == HT_FLOAT32 ? NULL : p->halves + column * p->k;
#define AT(k, v) ((k) * HT_PANEL + (v) / VECTORS * next + (v) % VECTORS * VF_LANES)
#define B_AT(i) (type == HT_FLOAT32 ? vf_load(panel + (i)) : vf_load_half(halves + (i), type))
    int64_t k = 0;
#pragma GCC unroll 3
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int u = 0; u < unroll; u++)
#pragma GCC unroll 4
            for (int v = 0; v < width; v++)
                acc[i][u][v] = vf_set1(0.0f);
    for (; k + unroll <= p->k; k += unroll) {
#pragma GCC unroll 8
        for (int u = 0; u < unroll; u++) {
            vf b[2 * VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < width; v++)
                b[v] = B_AT(AT(k + u, v));
#pragma GCC unroll 3
            for (int i = 0; i < rows; i++) {
                const vf x = vf_set1(a[i * p->a_row + (k + u) * p->a_k]);
#pragma GCC unroll 4
                for (int v = 0; v < width; v++)
                    acc[i][u][v] = vf_fma(x, b[v], acc[i][u][v]);
            }
        }
    }
    for (; k < p->k; k++)
#pragma GCC unroll 4
        for (int v = 0; v < width; v++) {
            const vf b = B_AT(AT(k, v));
#pragma GCC unroll 3
            for (int i = 0; i < rows; i++)
                acc[i][0][v] = vf_fma(vf_set1(a[i * p->a_row + k * p->a_k]), b, acc[i][0][v]);
        }
#pragma GCC unroll 3
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < width; v++) {
            const int64_t at = column + v * VF_LANES, left = ht_min64(VF_LANES, p->n - at);
            if (left <= 0)
                break;
            vf sum = acc[i][0][v];
#pragma GCC unroll 8
            for (int u = 1; u < unroll; u++)
                sum += acc[i][u][v];
            write_sums(p, i, at, left, sum);
        }
#undef B_AT
#undef AT
}

/* Independent sums that fit the registers, for one row and for two or three rows, and the number of panels. */
#if defined(__AVX512F__)
#define GEMV_UNROLL 8
#define GEMV_UNROLL_ROWS 4
#define GEMV_PANELS 2
#elif defined(__AVX2__) || defined(__aarch64__)
#define GEMV_UNROLL (VF_LANES == 8 ? 4 : 2)
#define GEMV_UNROLL_ROWS (VF_LANES == 8 ? 2 : 1)
#define GEMV_PANELS 1
#else
#define GEMV_UNROLL 1
#define GEMV_UNROLL_ROWS 1
#define GEMV_PANELS 1
#endif

HT_INLINE void gemv_columns(const ht_gemm_product *p, int64_t col0, int64_t col1, const int32_t type)
{
    int64_t j = col0;
    if (p->m == 1) {
        for (; j < col1; j += HT_PANEL)
            gemv_panels(p, 1, 1, GEMV_UNROLL, j, type);
    } else if (p->m == 2) {
        for (; GEMV_PANELS > 1 && j + HT_PANEL < col1; j += 2 * HT_PANEL)
            gemv_panels(p, 2, GEMV_PANELS, GEMV_UNROLL_ROWS, j, type);
        for (; j < col1; j += HT_PANEL)
            gemv_panels(p, 2, 1, GEMV_UNROLL_ROWS, j, type);
    } else {
        for (; GEMV_PANELS > 1 && j + HT_PANEL < col1; j += 2 * HT_PANEL)
            gemv_panels(p, 3, GEMV_PANELS, GEMV_UNROLL_ROWS, j, type);
        for (; j < col1; j += HT_PANEL)
            gemv_panels(p, 3, 1, GEMV_UNROLL_ROWS, j, type);
    }
}

/* Functions of their own, because GCC takes longer for one that contains all. */
#define COLUMNS(name, type)                                                                                            \
    static __attribute__((noinline)) void name(const ht_gemm_product *p, int64_t col0, int64_t col1)                   \
    {                                                                                                                  \
        gemv_columns(p, col0, col1, type);                                                                             \
    }
COLUMNS(columns_f32, HT_FLOAT32)
COLUMNS(columns_f16, HT_FLOAT16)
COLUMNS(columns_bf16, HT_BFLOAT16)

void ht_gemv_packed(const ht_gemm_product *p, int64_t col0, int64_t col1)
{
    if (!p->halves)
        columns_f32(p, col0, col1);
    else if (p->halves_type == HT_FLOAT16)
        columns_f16(p, col0, col1);
    else
        columns_bf16(p, col0, col1);
}

/* Dot products of at most `vectors` vectors: those of VF_LANES rows of B are summed up by a transposition. */
HT_INLINE void short_dots(const ht_gemm_product *p, const int vectors, int64_t i, int64_t col0, int64_t col1)
{
    const int64_t rest = p->k - (vectors - 1) * VF_LANES;
    vf a[4];
#pragma GCC unroll 4
    for (int v = 0; v < vectors; v++)
        a[v] = vf_load_n(p->a + i * p->a_row + v * VF_LANES, v + 1 < vectors ? VF_LANES : rest);
    for (int64_t j = col0; j < col1; j += VF_LANES) {
        const int64_t left = ht_min64(VF_LANES, col1 - j);
        vf sums[VF_LANES];
#pragma GCC unroll 16
        for (int64_t c = 0; c < VF_LANES; c++) {
            const float *b = p->b + (j + ht_min64(c, left - 1)) * p->ldb;
            vf sum = a[vectors - 1] * vf_load_n(b + (vectors - 1) * VF_LANES, rest);
#pragma GCC unroll 4
            for (int v = 0; v + 1 < vectors; v++)
                sum = vf_fma(a[v], vf_load(b + v * VF_LANES), sum);
            sums[c] = sum;
        }
        vf_transpose(sums);
#pragma GCC unroll 4
        for (int half = VF_LANES / 2; half > 0; half /= 2)
#pragma GCC unroll 16
            for (int c = 0; c < half; c++)
                sums[c] += sums[c + half];
        write_sums(p, i, j, left, sums[0]);
    }
}

#if defined(__AVX512F__) || defined(__aarch64__) /* with 32 registers */
#define DOT_ROWS 4
#else
#define DOT_ROWS 2
#endif

/* Dot products of row i of A with `rows` rows of B from j on, which are read at the same time: the processor then
 * fetches more of B ahead. Each sum has the same order of terms for any number of rows. */
HT_INLINE void long_dots(const ht_gemm_product *p, const int rows, int64_t i, int64_t j)
{
    const ht_epilogue *e = &p->epilogue;
    const float *a = p->a + i * p->a_row, *b = p->b + j * p->ldb;
    vf s[DOT_ROWS][4];
    int64_t k = 0;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++)
            s[r][u] = vf_set1(0.0f);
    HT_LONG_STEPS(k, 4 * VF_LANES, p->k)
#pragma GCC unroll 4
        for (int u = 0; u < 4; u++) {
            const vf x = vf_load(a + k + u * VF_LANES);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                s[r][u] = vf_fma(x, vf_load(b + r * p->ldb + k + u * VF_LANES), s[r][u]);
        }
    for (; k < p->k; k += VF_LANES) {
        const int64_t left = ht_min64(VF_LANES, p->k - k);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            s[r][0] = vf_fma(vf_load_n(a + k, left), vf_load_n(b + r * p->ldb + k, left), s[r][0]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        float sum = vf_hsum((s[r][0] + s[r][1]) + (s[r][2] + s[r][3])) * e->alpha;
        if (e->bias)
            sum += e->beta * e->bias[i * e->bias_row + (j + r) * e->bias_col];
        if (e->addend)
            sum += e->addend[i * e->addend_row + j + r];
        sum = sum < e->low ? e->low : sum;
        p->y[i * p->n + j + r] = sum > e->high ? e->high : sum;
    }
}

/* One to three rows times the transpose of a row-major B[n][k]: dot products of rows. A run that stops leaves y
 * incomplete, as in the functions below. */
void ht_gemv_dot(const ht_gemm_product *p, int64_t col0, int64_t col1)
{
    int64_t pace = HT_PACE;
    for (int64_t i = 0; i < p->m; i++) {
        if (p->k > 0 && p->k <= 4 * VF_LANES) {
            switch (ht_ceil_div(p->k, VF_LANES)) {
            case 1: short_dots(p, 1, i, col0, col1); break;
            case 2: short_dots(p, 2, i, col0, col1); break;
            case 3: short_dots(p, 3, i, col0, col1); break;
            default: short_dots(p, 4, i, col0, col1); break;
            }
            continue;
        }
        int64_t j = col0;
        for (; j < col1 && !ht_paced_stop(&pace, DOT_ROWS * p->k); j += DOT_ROWS)
            if (j + DOT_ROWS <= col1)
                long_dots(p, DOT_ROWS, i, j);
            else
                for (int64_t c = j; c < col1; c++)
                    long_dots(p, 1, i, c);
        if (j < col1)
            return;
    }
}

/* Terms k .. k + count - 1 of the sums of columns j .. j + columns - 1, at most a vector. */
HT_INLINE void add_terms(const ht_gemm_product *p, const vf *x, const int count, int64_t k, int64_t j, const int64_t columns)
{
    const float *b = p->b + k * p->ldb + j;
    vf sum = k == 0 ? vf_set1(0.0f) : columns == VF_LANES ? vf_load(p->y + j) : vf_load_n(p->y + j, columns);
#pragma GCC unroll 8
    for (int u = 0; u < count; u++)
        sum = vf_fma(x[u], columns == VF_LANES ? vf_load(b + u * p->ldb) : vf_load_n(b + u * p->ldb, columns), sum);
    if (columns == VF_LANES)
        vf_store(p->y + j, sum);
    else
        vf_store_n(p->y + j, columns, sum);
}

/* The same for columns [col0, col1). B is read from aligned addresses if its rows are whole vectors: loads that cross
 * cache lines take 1.5 times as long. */
HT_INLINE void add_rows(const ht_gemm_product *p, const int count, int64_t k, int64_t col0, int64_t col1)
{
    const int64_t misaligned = (int64_t)((uintptr_t)(p->b + col0) / sizeof(float) % VF_LANES);
    vf x[8];
    int64_t j = col0;
#pragma GCC unroll 8
    for (int u = 0; u < count; u++)
        x[u] = vf_set1(p->a[(k + u) * p->a_k]);
    if (misaligned != 0 && p->ldb % VF_LANES == 0) {
        const int64_t columns = ht_min64(VF_LANES - misaligned, col1 - col0);
        add_terms(p, x, count, k, j, columns);
        j += columns;
    }
    for (; j + VF_LANES <= col1; j += VF_LANES)
        add_terms(p, x, count, k, j, VF_LANES);
    if (j < col1)
        add_terms(p, x, count, k, j, col1 - j);
}

/* One row times a row-major B[k][n]. Each step adds the products with several rows of B to the sums, which are in y. */
void ht_gemv_rows(const ht_gemm_product *p, int64_t col0, int64_t col1)
{
    enum { UNROLL = 8 };
    int64_t k = 0, pace = HT_PACE;
    for (; k + UNROLL <= p->k && !ht_paced_stop(&pace, UNROLL * (col1 - col0)); k += UNROLL)
        add_rows(p, UNROLL, k, col0, col1);
    if (k + UNROLL <= p->k)
        return;
    for (; k < p->k; k++)
        add_rows(p, 1, k, col0, col1);
    for (int64_t j = col0; j < col1; j += VF_LANES) {
        const int64_t left = ht_min64(VF_LANES, col1 - j);
        write_sums(p, 0, j, left, p->k == 0 ? vf_set1(0.0f) : vf_load_n(p->y + j, left));
    }
}

/* Any number of rows if k is 1: products without sums. */
void ht_gemv_outer(const ht_gemm_product *p, int64_t col0, int64_t col1)
{
    const ht_epilogue *e = &p->epilogue;
    const int is_plain = e->alpha == 1 && !e->bias && !e->addend && e->low == -INFINITY && e->high == INFINITY;
    int64_t pace = HT_PACE;
    for (int64_t i = 0; i < p->m && !ht_paced_stop(&pace, col1 - col0); i++) {
        const vf x = vf_set1(p->a[i * p->a_row]);
        int64_t j = col0;
        for (; is_plain && j + VF_LANES <= col1; j += VF_LANES)
            vf_store(p->y + i * p->n + j, x * vf_load(p->b + j));
        for (; j < col1; j += VF_LANES) {
            const int64_t left = ht_min64(VF_LANES, col1 - j);
            write_sums(p, i, j, left, x * vf_load_n(p->b + j, left));
        }
    }
}
