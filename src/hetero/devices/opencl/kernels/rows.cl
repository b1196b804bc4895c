// Reductions, softmax and layer normalization, along the middle of [outer, n, inner]. A row is one (outer, inner).
// W work-items share a row and combine their parts in local memory; with W = 1, each work-item has its own row.

#if W == 1
#define ROW get_global_id(0)
#define ITEM 0
#define PREPARE(A)
#define SHARED(total, combine) total
#else
#define ROW get_group_id(0)
#define ITEM get_local_id(0)
#define PREPARE(A) __local A parts[W];
#define SHARED(total, combine) share_##combine(total, parts)
#define DEFINE_SHARE(name, A)                                                                                          \
    A share_##name(A total, __local A *parts)                                                                          \
    {                                                                                                                  \
        uint item = get_local_id(0);                                                                                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        parts[item] = total;                                                                                           \
        for (uint step = W / 2; step > 0; step /= 2) {                                                                 \
            barrier(CLK_LOCAL_MEM_FENCE);                                                                              \
            if (item < step)                                                                                           \
                parts[item] = name(parts[item], parts[item + step]);                                                   \
        }                                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        return parts[0];                                                                                               \
    }
#endif

// Sums are added in blocks, so that the rounding error grows with BLOCK + n / BLOCK instead of n.
#define BLOCK 64
#define EACH(total, combine, first, value)                                                                             \
    for (uint begin = ITEM; begin < n; begin += W * BLOCK) {                                                           \
        uint end = min(n, begin + W * BLOCK);                                                                          \
        A_TYPE part = first;                                                                                           \
        for (uint j = begin; j < end; j += W)                                                                          \
            part = combine(part, value);                                                                               \
        total = combine(total, part);                                                                                  \
    }

#ifdef REDUCE
// X: the element type in memory; A_TYPE: the type of the total. READ(i) and WRITE(v, i) access memory. COMBINE: an
// expression of a and b; FIRST: the total of no elements; MAP: an expression of v; FINISH: of total and n.
A_TYPE combine(A_TYPE a, A_TYPE b) { return COMBINE; }
A_TYPE mapped(A_TYPE v) { return MAP; }
#if W > 1
DEFINE_SHARE(combine, A_TYPE)
#endif

__kernel void reduce(__global const X *x, __global X *y, uint rows, uint n, uint inner)
{
    PREPARE(A_TYPE)
    uint row = ROW;
    if (row >= rows)
        return;
    uint base = row / inner * n * inner + row % inner;
    A_TYPE total = FIRST;
    EACH(total, combine, FIRST, mapped(READ(base + j * inner)))
    total = SHARED(total, combine);
    if (ITEM == 0)
        WRITE(FINISH, row);
}
#else
#define A_TYPE float

float add(float a, float b) { return a + b; }
float larger(float a, float b) { return b > a || isnan(b) ? b : a; }
#if W > 1
DEFINE_SHARE(add, float)
DEFINE_SHARE(larger, float)
#endif

__kernel void softmax(__global const S *x, __global S *y, uint rows, uint n, uint inner)
{
    PREPARE(float)
    uint row = ROW;
    if (row >= rows)
        return;
    uint base = row / inner * n * inner + row % inner;
    float most = -INFINITY, total = 0;
    EACH(most, larger, -INFINITY, LOAD(base + j * inner, x))
    most = SHARED(most, larger);
    EACH(total, add, 0, exp(LOAD(base + j * inner, x) - most))
    total = SHARED(total, add);
#ifdef LOG
    float scale = log(total);
#else
    float scale = 1 / total;
#endif
    for (uint j = ITEM; j < n; j += W) {
        float value = LOAD(base + j * inner, x) - most;
#ifdef LOG
        STORE(value - scale, base + j * inner, y);
#else
        STORE(exp(value) * scale, base + j * inner, y);
#endif
    }
}

// Rows are contiguous. scale and shift have n elements; shift is read only with SHIFT. This is no argument, because pocl
// 3.1 compiles loops with a condition that all work-items share incorrectly: all of them run its last round.
__kernel void layer_normalization(__global const S *x, __global const S *scale, __global const S *shift, __global S *y,
                                  uint rows, uint n, float epsilon)
{
    PREPARE(float)
    uint row = ROW;
    if (row >= rows)
        return;
    uint base = row * n;
    float total = 0, squares = 0;
    EACH(total, add, 0, LOAD(base + j, x))
    float mean = SHARED(total, add) / n;
    EACH(squares, add, 0, (LOAD(base + j, x) - mean) * (LOAD(base + j, x) - mean))
    float factor = 1 / sqrt(SHARED(squares, add) / n + epsilon);
    for (uint j = ITEM; j < n; j += W) {
        float value = (LOAD(base + j, x) - mean) * factor * LOAD(j, scale);
#ifdef SHIFT
        value += LOAD(j, shift);
#endif
        STORE(value, base + j, y);
    }
}
#endif
