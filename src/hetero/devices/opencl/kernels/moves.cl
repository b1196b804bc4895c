// Copies between layouts. T: an unsigned integer of the element's size.

// Dimensions from the innermost to the outermost, with the distance between neighbors on both sides, in elements.
typedef struct {
    uint rank;
    uint dims[8];
    int from[8];
    int to[8];
} Layout;

// y[to] = x[from] for each of n elements. x0, y0: the positions of the first element.
__kernel void move(__global const T *x, __global T *y, Layout layout, uint n, int x0, int y0)
{
    uint i = get_global_id(0);
    if (i >= n)
        return;
    int from = x0, to = y0;
    uint rest = i;
    for (uint d = 0; d < layout.rank; d++) {
        int at = rest % layout.dims[d];
        rest /= layout.dims[d];
        from += at * layout.from[d];
        to += at * layout.to[d];
    }
    y[to] = x[from];
}

__kernel void fill(__global T *y, T value, uint n)
{
    uint i = get_global_id(0);
    if (i < n)
        y[i] = value;
}

// y[o, j, k] = x[o, indices[j], k], for x [outer, size, inner] and count indices of type I. An index outside
// -size .. size - 1 sets *failed to mark, and gives 0.
__kernel void gather(__global const T *x, __global const I *indices, __global T *y, __global int *failed, uint n,
                     uint size, uint inner, uint count, int mark)
{
    uint i = get_global_id(0);
    if (i >= n)
        return;
    uint k = i % inner, j = i / inner % count, o = i / inner / count;
    long index = indices[j];
    if (index < 0)
        index += size;
    if (index < 0 || index >= size) {
        *failed = mark;
        y[i] = 0;
        return;
    }
    y[i] = x[(o * size + (uint)index) * inner + k];
}
