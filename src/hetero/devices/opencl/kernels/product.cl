// C[i, j] = sum over k of A[i, k] * B[k, j], for each batch. Distances between neighbors, in elements: a_row and a_k of
// A, b_k and b_column of B, c_row of C (whose columns are contiguous); a_batch, b_batch and c_batch between batches.
typedef struct {
    uint m, n, k;
    uint a_row, a_k, b_k, b_column, c_row;
    uint a_batch, b_batch, c_batch;
    uint a_begin, b_begin, c_begin;
} Product;

#ifdef TILED
// For GPUs. A work-group computes a tile of ROWS x COLUMNS and reads A and B through local memory, DEPTH of k at a time.
// A work-item computes ROWS_EACH x COLUMNS_EACH elements of it. product.py tunes these.
#define ITEMS_Y (ROWS / ROWS_EACH)
#define ITEMS_X (COLUMNS / COLUMNS_EACH)

__kernel __attribute__((reqd_work_group_size(ITEMS_X, ITEMS_Y, 1))) void
product(__global const S *a, __global const S *b, __global S *c, Product p)
{
    __local float a_tile[DEPTH][ROWS + 1];
    __local float b_tile[DEPTH][COLUMNS + 1];
    uint batch = get_group_id(2), row = get_group_id(1) * ROWS, column = get_group_id(0) * COLUMNS;
    uint x = get_local_id(0), y = get_local_id(1), item = y * ITEMS_X + x;
    a += p.a_begin + (size_t)batch * p.a_batch;
    b += p.b_begin + (size_t)batch * p.b_batch;
    c += p.c_begin + (size_t)batch * p.c_batch;
    float total[ROWS_EACH][COLUMNS_EACH];
    for (uint r = 0; r < ROWS_EACH; r++)
        for (uint s = 0; s < COLUMNS_EACH; s++)
            total[r][s] = 0;
    for (uint k0 = 0; k0 < p.k; k0 += DEPTH) {
        for (uint t = item; t < ROWS * DEPTH; t += ITEMS_X * ITEMS_Y) {
            // Neighboring work-items read neighboring elements, whichever way the matrix lies.
            uint r = p.a_k == 1 ? t / DEPTH : t % ROWS, k = p.a_k == 1 ? t % DEPTH : t / ROWS;
            bool inside = row + r < p.m && k0 + k < p.k;
            a_tile[k][r] = inside ? LOAD((row + r) * p.a_row + (k0 + k) * p.a_k, a) : 0.0f;
        }
        for (uint t = item; t < COLUMNS * DEPTH; t += ITEMS_X * ITEMS_Y) {
            uint s = p.b_column == 1 ? t % COLUMNS : t / DEPTH, k = p.b_column == 1 ? t / COLUMNS : t % DEPTH;
            bool inside = column + s < p.n && k0 + k < p.k;
            b_tile[k][s] = inside ? LOAD((k0 + k) * p.b_k + (column + s) * p.b_column, b) : 0.0f;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint k = 0; k < DEPTH; k++) {
            float right[COLUMNS_EACH];
            for (uint s = 0; s < COLUMNS_EACH; s++)
                right[s] = b_tile[k][x + s * ITEMS_X];
            for (uint r = 0; r < ROWS_EACH; r++) {
                float left = a_tile[k][y + r * ITEMS_Y];
                for (uint s = 0; s < COLUMNS_EACH; s++)
                    total[r][s] = fma(left, right[s], total[r][s]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint r = 0; r < ROWS_EACH; r++)
        for (uint s = 0; s < COLUMNS_EACH; s++) {
            uint i = row + y + r * ITEMS_Y, j = column + x + s * ITEMS_X;
            if (i < p.m && j < p.n)
                STORE(total[r][s], i * p.c_row + j, c);
        }
}
#else
// For processors, whose caches replace local memory. A work-item computes 4 x 16 elements.
__kernel void product(__global const S *a, __global const S *b, __global S *c, Product p)
{
    uint row = get_global_id(1) * 4, column = get_global_id(0) * 16, batch = get_global_id(2);
    if (row >= p.m || column >= p.n)
        return;
    a += p.a_begin + (size_t)batch * p.a_batch;
    b += p.b_begin + (size_t)batch * p.b_batch;
    c += p.c_begin + (size_t)batch * p.c_batch;
    uint rows = min(4u, p.m - row), columns = min(16u, p.n - column);
    if (p.b_column == 1 && columns == 16) {
        // The last rows are computed again where the block ends below the matrix.
        uint a0 = row * p.a_row, a1 = (row + min(1u, rows - 1)) * p.a_row, a2 = (row + min(2u, rows - 1)) * p.a_row,
             a3 = (row + rows - 1) * p.a_row;
        float16 t0 = 0, t1 = 0, t2 = 0, t3 = 0;
        for (uint k = 0; k < p.k; k++) {
            float16 right = LOAD16(b + k * p.b_k + column);
            uint at = k * p.a_k;
            t0 = fma((float16)LOAD(a0 + at, a), right, t0);
            t1 = fma((float16)LOAD(a1 + at, a), right, t1);
            t2 = fma((float16)LOAD(a2 + at, a), right, t2);
            t3 = fma((float16)LOAD(a3 + at, a), right, t3);
        }
        c += row * p.c_row + column;
        STORE16(t0, c);
        if (rows > 1)
            STORE16(t1, c + p.c_row);
        if (rows > 2)
            STORE16(t2, c + 2 * p.c_row);
        if (rows > 3)
            STORE16(t3, c + 3 * p.c_row);
        return;
    }
    for (uint r = 0; r < rows; r++)
        for (uint s = 0; s < columns; s++) {
            uint left = (row + r) * p.a_row, right = (column + s) * p.b_column, k = 0;
            float total = 0;
            if (p.a_k == 1 && p.b_k == 1) {
                float8 totals = 0;
                for (; k + 8 <= p.k; k += 8)
                    totals = fma(LOAD8(a + left + k), LOAD8(b + right + k), totals);
                float4 half_totals = totals.lo + totals.hi;
                total = half_totals.x + half_totals.y + half_totals.z + half_totals.w;
            }
            for (; k < p.k; k++)
                total = fma(LOAD(left + k * p.a_k, a), LOAD(right + k * p.b_k, b), total);
            STORE(total, (row + r) * p.c_row + column + s, c);
        }
}
#endif
