// C[i, j] = sum over k of A[i, k] * B[k, j], for each batch. Distances between neighbors, in elements: a_row and a_k of
// A, b_k and b_column of B, c_row of C (whose columns are contiguous); a_batch, b_batch and c_batch between batches.
typedef struct {
    uint m, n, k;
    uint a_row, a_k, b_k, b_column, c_row;
    uint a_batch, b_batch, c_batch;
    uint a_begin, b_begin, c_begin;
} Product;

#ifdef TILED
// For GPUs. A work-group computes a tile of ROWS x COLUMNS and reads A and B through local memory, DEPTH of k at a time:
// while it computes with one half of the local memory, it loads the next part into registers and then into the other
// half. A work-item computes ROWS_EACH x COLUMNS_EACH elements, in blocks of at most 4 x 4. product.py tunes these.
//
// A_ALONG_K: the elements of a row of A are contiguous, else those of a column may be. B_ALONG_K: the elements of a
// column of B are. A_FOUR, B_FOUR and C_FOUR: all positions and sizes are multiples of 4 in the direction in which
// elements are contiguous, so four of them are read or written at once.
#define ITEMS_Y (ROWS / ROWS_EACH)
#define ITEMS_X (COLUMNS / COLUMNS_EACH)
#define ITEMS (ITEMS_X * ITEMS_Y)
#define HEIGHT (ROWS_EACH < 4 ? ROWS_EACH : 4)
#define WIDTH (COLUMNS_EACH < 4 ? COLUMNS_EACH : 4)
#define UNROLL _Pragma("unroll")

#ifdef HALF
#define LOAD4(p) vloada_half4(0, p)
#define STORE4(v, p) vstorea_half4_rte(v, 0, p)
#else
#define LOAD4(p) (*(__global const float4 *)(p))
#define STORE4(v, p) (*(__global float4 *)(p) = (v))
#endif

// Four elements of x, ``step`` apart, of which ``count`` are inside the matrix; the others are 0.
float4 four(__global const S *x, uint at, uint step, int count, bool together)
{
    if (together)
        return count > 0 ? LOAD4(x + at) : (float4)0;
    return (float4)(count > 0 ? LOAD(at, x) : 0.0f, count > 1 ? LOAD(at + step, x) : 0.0f,
                    count > 2 ? LOAD(at + 2 * step, x) : 0.0f, count > 3 ? LOAD(at + 3 * step, x) : 0.0f);
}

// Part of a matrix in local memory, [k][i]. A tile of LENGTH x DEPTH consists of groups of four, which an item loads
// into registers (LOAD_TILE) and stores (STORE_TILE): along k, or along i.
#define GROUPS(LENGTH) ((LENGTH) * DEPTH / 4)
#define LOADS(LENGTH) ((GROUPS(LENGTH) + ITEMS - 1) / ITEMS)
#define IN_TILE(t, LENGTH) (GROUPS(LENGTH) % ITEMS == 0 || (t) < GROUPS(LENGTH))
#define I_OF(t, LENGTH, ALONG_K) (ALONG_K ? (t) / (DEPTH / 4) : (t) % ((LENGTH) / 4) * 4)
#define K_OF(t, LENGTH, ALONG_K) (ALONG_K ? (t) % (DEPTH / 4) * 4 : (t) / ((LENGTH) / 4))
#define LOAD_TILE(part, x, LENGTH, ALONG_K, FOUR, first, size, i_step, k_step, k0)                                      \
    UNROLL for (uint load = 0; load < LOADS(LENGTH); load++)                                                           \
    {                                                                                                                  \
        uint t = item + load * ITEMS;                                                                                  \
        uint i = first + I_OF(t, LENGTH, ALONG_K), k = (k0) + K_OF(t, LENGTH, ALONG_K);                                \
        int inside = ALONG_K ? (i < size ? (int)(p.k - min(k, p.k)) : 0) : (k < p.k ? (int)(size - min(i, size)) : 0); \
        if (IN_TILE(t, LENGTH))                                                                                        \
            part[load] = four(x, i * i_step + k * k_step, ALONG_K ? k_step : i_step, inside, FOUR);                    \
    }
#define STORE_TILE(part, tile, LENGTH, ALONG_K)                                                                        \
    UNROLL for (uint load = 0; load < LOADS(LENGTH); load++)                                                           \
    {                                                                                                                  \
        uint t = item + load * ITEMS, i = I_OF(t, LENGTH, ALONG_K), k = K_OF(t, LENGTH, ALONG_K);                      \
        if (IN_TILE(t, LENGTH)) {                                                                                      \
            if (ALONG_K) {                                                                                             \
                tile[k][i] = part[load].x;                                                                             \
                tile[k + 1][i] = part[load].y;                                                                         \
                tile[k + 2][i] = part[load].z;                                                                         \
                tile[k + 3][i] = part[load].w;                                                                         \
            } else                                                                                                     \
                *(__local float4 *)&tile[k][i] = part[load];                                                           \
        }                                                                                                              \
    }
// The elements of a row of a tile that an item multiplies: blocks of SIDE neighbors.
#define TAKE(taken, row, EACH, SIDE, place, ITEMS_BESIDE)                                                              \
    UNROLL for (uint block = 0; block < EACH / SIDE; block++)                                                          \
    {                                                                                                                  \
        __local const float *from = &row[(place + block * ITEMS_BESIDE) * SIDE];                                       \
        if (SIDE == 4) {                                                                                               \
            float4 four_of = *(__local const float4 *)from;                                                            \
            taken[block * SIDE] = four_of.x;                                                                           \
            taken[block * SIDE + 1 % SIDE] = four_of.y;                                                                \
            taken[block * SIDE + 2 % SIDE] = four_of.z;                                                                \
            taken[block * SIDE + 3 % SIDE] = four_of.w;                                                                \
        } else                                                                                                         \
            UNROLL for (uint e = 0; e < SIDE; e++) taken[block * SIDE + e] = from[e];                                  \
    }

// EPILOGUE_NAMES: the arguments of the function epilogue, which the planner adds (elementwise.py).
#ifdef EPILOGUE_NAMES
#define FINISHED(v, i, j) epilogue(v, batch * p.c_batch + (i) * p.c_row + (j), i, j EPILOGUE_NAMES)
#else
#define EPILOGUE_PARAMETERS
#define FINISHED(v, i, j) v
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
product(__global const S *a, __global const S *b, __global S *c, Product p EPILOGUE_PARAMETERS)
{
    // Rows are padded, so that work-items that store along k do not all use the same bank; 16-byte alignment remains.
    __local float __attribute__((aligned(16))) a_tile[2][DEPTH][ROWS + 4];
    __local float __attribute__((aligned(16))) b_tile[2][DEPTH][COLUMNS + 4];
    uint batch = get_group_id(2), row = get_group_id(1) * ROWS, column = get_group_id(0) * COLUMNS;
    uint item = get_local_id(0);
    // 32 neighboring work-items, which run together, compute a block that is 8 wide and 4 high: they read little.
    bool in_blocks = ITEMS_X % 8 == 0 && ITEMS_Y % 4 == 0;
    uint x = in_blocks ? item / 32 % (ITEMS_X / 8 + !in_blocks) * 8 + item % 8 : item % ITEMS_X;
    uint y = in_blocks ? item / 32 / (ITEMS_X / 8 + !in_blocks) * 4 + item % 32 / 8 : item / ITEMS_X;
    a += p.a_begin + (size_t)batch * p.a_batch;
    b += p.b_begin + (size_t)batch * p.b_batch;
    c += p.c_begin + (size_t)batch * p.c_batch;
    float total[ROWS_EACH][COLUMNS_EACH];
    UNROLL for (uint r = 0; r < ROWS_EACH; r++)
        UNROLL for (uint s = 0; s < COLUMNS_EACH; s++) total[r][s] = 0;
    float4 a_part[LOADS(ROWS)], b_part[LOADS(COLUMNS)];
    LOAD_TILE(a_part, a, ROWS, A_ALONG_K, A_FOUR, row, p.m, p.a_row, p.a_k, 0)
    LOAD_TILE(b_part, b, COLUMNS, B_ALONG_K, B_FOUR, column, p.n, p.b_column, p.b_k, 0)
    STORE_TILE(a_part, a_tile[0], ROWS, A_ALONG_K)
    STORE_TILE(b_part, b_tile[0], COLUMNS, B_ALONG_K)
    barrier(CLK_LOCAL_MEM_FENCE);
    uint now = 0;
    for (uint k0 = 0; k0 < p.k; k0 += DEPTH) {
        bool has_next = k0 + DEPTH < p.k;
        if (has_next) {
            LOAD_TILE(a_part, a, ROWS, A_ALONG_K, A_FOUR, row, p.m, p.a_row, p.a_k, k0 + DEPTH)
            LOAD_TILE(b_part, b, COLUMNS, B_ALONG_K, B_FOUR, column, p.n, p.b_column, p.b_k, k0 + DEPTH)
        }
        UNROLL for (uint k = 0; k < DEPTH; k++)
        {
            float left[ROWS_EACH], right[COLUMNS_EACH];
            TAKE(left, a_tile[now][k], ROWS_EACH, HEIGHT, y, ITEMS_Y)
            TAKE(right, b_tile[now][k], COLUMNS_EACH, WIDTH, x, ITEMS_X)
            UNROLL for (uint r = 0; r < ROWS_EACH; r++)
                UNROLL for (uint s = 0; s < COLUMNS_EACH; s++) total[r][s] = fma(left[r], right[s], total[r][s]);
        }
        now ^= 1;
        if (has_next) {
            STORE_TILE(a_part, a_tile[now], ROWS, A_ALONG_K)
            STORE_TILE(b_part, b_tile[now], COLUMNS, B_ALONG_K)
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    UNROLL for (uint r = 0; r < ROWS_EACH; r++)
    {
        uint i = row + (y + r / HEIGHT * ITEMS_Y) * HEIGHT + r % HEIGHT;
        UNROLL for (uint s = 0; s < COLUMNS_EACH; s += WIDTH)
        {
            uint j = column + (x + s / WIDTH * ITEMS_X) * WIDTH;
            if (C_FOUR && WIDTH == 4) {
                if (i < p.m && j < p.n)
                    STORE4((float4)(FINISHED(total[r][s], i, j), FINISHED(total[r][s + 1 % WIDTH], i, j + 1),
                                    FINISHED(total[r][s + 2 % WIDTH], i, j + 2),
                                    FINISHED(total[r][s + 3 % WIDTH], i, j + 3)), c + i * p.c_row + j);
            } else
                UNROLL for (uint e = 0; e < WIDTH; e++)
                    if (i < p.m && j + e < p.n)
                        STORE(FINISHED(total[r][s + e], i, j + e), i * p.c_row + j + e, c);
        }
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
