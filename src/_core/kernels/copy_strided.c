/* out = a strided view of in. Slice, split, transpose, expand, tile and depth-to-space all are this copy.
 *
 * Operands: in x; out of the same dtype. Parameters: ints = offset, rank, count[rank], step[rank], outermost first, in
 * elements of x; steps may be 0 (repeat) or negative (reverse). The counts' product is out's size; rank <= 16. Every
 * address is checked against x's size before the first copy.
 *
 * Adjacent dimensions are merged if the view walks them as one, and short contiguous rows become wider elements. The
 * remaining loops are copied two at a time: as rows (innermost step 1), as fills (step 0), as transposes in tiles (if
 * another step is 1: in any permutation, x is contiguous along that loop and out along the innermost), or element by
 * element. Threads take different elements of out.
 */
#include "elements.h"
#include "transpose.h"
#include "vec.h"

#include <stdlib.h>

#define MAX_LOOPS 16 /* bounds the arrays of a view on the stack */

/* Steps count elements when read, bytes afterwards. */
typedef struct {
    int rank;
    int64_t count[MAX_LOOPS], step[MAX_LOOPS]; /* outermost first */
} view;

/* An unaligned element of each size. */
typedef uint8_t any_u8;
typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t any_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t any_u64 __attribute__((aligned(1), may_alias));

/* rows x n elements: element i of row r is read at x + r * row_step + i * step; out is dense. */
typedef void (*rows_fn)(const char *x, int64_t row_step, int64_t step, char *out, int64_t out_step, int64_t rows,
                        int64_t n);

#define DEFINE_ROWS(T)                                                                                              \
    static void fill_rows_##T(const char *x, int64_t row_step, int64_t step, char *out, int64_t out_step,           \
                              int64_t rows, int64_t n)                                                              \
    {                                                                                                               \
        (void)step;                                                                                                 \
        for (int64_t r = 0; r < rows; r++) {                                                                        \
            const any_##T value = *(const any_##T *)(x + r * row_step);                                             \
            any_##T *to = (any_##T *)(out + r * out_step);                                                          \
            for (int64_t i = 0; i < n; i++)                                                                         \
                to[i] = value;                                                                                      \
        }                                                                                                           \
    }                                                                                                               \
    static void step_rows_##T(const char *x, int64_t row_step, int64_t step, char *out, int64_t out_step,           \
                              int64_t rows, int64_t n)                                                              \
    {                                                                                                               \
        for (int64_t r = 0; r < rows; r++) {                                                                        \
            const char *from = x + r * row_step;                                                                    \
            any_##T *to = (any_##T *)(out + r * out_step);                                                          \
            for (int64_t i = 0; i < n; i++)                                                                         \
                to[i] = *(const any_##T *)(from + i * step);                                                        \
        }                                                                                                           \
    }                                                                                                               \
    static void even_rows_##T(const char *x, int64_t row_step, int64_t step, char *out, int64_t out_step,           \
                              int64_t rows, int64_t n)                                                              \
    {                                                                                                               \
        (void)step;                                                                                                 \
        for (int64_t r = 0; r < rows; r++) {                                                                        \
            const any_##T *from = (const any_##T *)(x + r * row_step);                                              \
            any_##T *to = (any_##T *)(out + r * out_step);                                                          \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) to[i] = from[2 * i];                               \
        }                                                                                                           \
    }                                                                                                               \
    static void transpose_##T(const char *x, int64_t row_step, int64_t step, char *out, int64_t out_step,           \
                              int64_t rows, int64_t n)                                                              \
    {                                                                                                               \
        (void)row_step;                                                                                             \
        HT_SHARED(transpose)(sizeof(any_##T), x, step, out, out_step, rows, n);                                     \
    }
DEFINE_ROWS(u8)
DEFINE_ROWS(u16)
DEFINE_ROWS(u32)
DEFINE_ROWS(u64)

/* Copies n bytes, WIDTH <= n <= 2 * WIDTH, as two copies of WIDTH bytes, which may overlap. */
#define SHORT_ROWS(WIDTH)                                                                                           \
    for (int64_t r = 0; r < rows; r++) {                                                                            \
        const char *from = x + r * row_step;                                                                        \
        char *to = out + r * out_step;                                                                              \
        memcpy(to, from, WIDTH);                                                                                    \
        memcpy(to + n - WIDTH, from + n - WIDTH, WIDTH);                                                            \
    }

/* Contiguous rows of n bytes. */
static void copy_rows(const char *x, int64_t row_step, int64_t step, char *out, int64_t out_step, int64_t rows, int64_t n)
{
    (void)step;
    if (n > 256)
        for (int64_t r = 0; r < rows; r++)
            memcpy(out + r * out_step, x + r * row_step, (size_t)n);
    else if (n > 128)
        SHORT_ROWS(128)
    else if (n > 64)
        SHORT_ROWS(64)
    else if (n > 32)
        SHORT_ROWS(32)
    else if (n > 16)
        SHORT_ROWS(16)
    else if (n > 8)
        SHORT_ROWS(8)
    else if (n > 4)
        SHORT_ROWS(4)
    else if (n > 2)
        SHORT_ROWS(2)
    else
        SHORT_ROWS(1)
}

/* Drops counts of 1 and merges adjacent dimensions. */
static void merge(view *v)
{
    int kept = 0;
    for (int i = 0; i < v->rank; i++) {
        if (v->count[i] == 1)
            continue;
        if (kept > 0 && v->step[kept - 1] == v->step[i] * v->count[i]) {
            v->count[kept - 1] *= v->count[i];
            v->step[kept - 1] = v->step[i];
        } else {
            v->count[kept] = v->count[i];
            v->step[kept++] = v->step[i];
        }
    }
    v->rank = kept;
}

/* Reads the view from the parameters and checks that it stays inside x and fills out. */
static int read_view(const ht_call *call, view *v, int64_t *offset)
{
    const ht_tensor *x = call->in[0], *out = call->out[0];
    if (call->num_ints < 2 || call->ints[1] < 0 || call->ints[1] > MAX_LOOPS ||
        call->num_ints != 2 + 2 * call->ints[1])
        return HT_ERR_OPERAND;
    *offset = call->ints[0];
    v->rank = (int)call->ints[1];
    int64_t size = 1, first = *offset, last = *offset;
    for (int i = 0; i < v->rank; i++) {
        const int64_t count = call->ints[2 + i], step = call->ints[2 + v->rank + i];
        int64_t reach;
        if (count < 0 || __builtin_mul_overflow(size, count, &size))
            return HT_ERR_OPERAND;
        v->count[i] = count;
        v->step[i] = step;
        if (count == 0)
            continue;
        if (__builtin_mul_overflow(step, count - 1, &reach) ||
            __builtin_add_overflow(reach < 0 ? first : last, reach, reach < 0 ? &first : &last))
            return HT_ERR_OPERAND;
    }
    if (size != out->size || (size > 0 && (first < 0 || last >= x->size)))
        return HT_ERR_OPERAND;
    return HT_OK;
}

/* A call as units of work: iterations of the loops outside the two that are copied together. If there is only one,
 * pieces of the longer of the two. */
typedef struct {
    view v;
    const char *x;
    char *out;
    int64_t bytes, out_step[MAX_LOOPS];
    int order[MAX_LOOPS], walks; /* the loops outside, outermost first */
    int64_t rows, row_step, out_row_step, n, step;
    rows_fn copy;
    enum { WALKS, ROWS, ELEMENTS } units_are;
    int64_t units, parts;
} copy;

/* Copies one walk in blocks, and stops between blocks if the run must end. Rows stay in groups because a transpose
 * needs tiles. */
static void copy_walk(const copy *c, const char *x, char *out, int64_t rows, int64_t n, int64_t *left)
{
    enum { GROUP = 64 }; /* rows that stay together: at least one tile of a transposition */
    const int64_t width = ht_min64(n, HT_PIECE), height = ht_max64(GROUP, HT_PIECE / ht_max64(1, width));
    for (int64_t i = 0; i < n; i += width)
        for (int64_t row = 0; row < rows; row += height) {
            const int64_t some = ht_min64(height, rows - row), count = ht_min64(width, n - i);
            if (ht_paced_stop(left, some * count))
                return;
            c->copy(x + row * c->row_step + i * c->step, c->row_step, c->step,
                    out + row * c->out_row_step + i * c->bytes, c->out_row_step, some, count);
        }
}

static void copy_walks(const copy *c, int64_t begin, int64_t end)
{
    const view *v = &c->v;
    int64_t index[MAX_LOOPS] = {0}, rest = begin, left = HT_PACE;
    const char *x = c->x;
    char *out = c->out;
    for (int i = c->walks - 1; i >= 0; i--) {
        const int loop = c->order[i];
        index[i] = rest % v->count[loop];
        rest /= v->count[loop];
        x += index[i] * v->step[loop];
        out += index[i] * c->out_step[loop];
    }
    for (int64_t walk = begin; walk < end; walk++) {
        copy_walk(c, x, out, c->rows, c->n, &left);
        for (int i = c->walks - 1; i >= 0; i--) {
            const int loop = c->order[i];
            x += v->step[loop];
            out += c->out_step[loop];
            if (++index[i] < v->count[loop])
                break;
            x -= v->step[loop] * v->count[loop];
            out -= c->out_step[loop] * v->count[loop];
            index[i] = 0;
        }
    }
}

static void copy_part(void *context, int64_t part, int thread)
{
    const copy *c = (const copy *)context;
    const int64_t begin = ht_part_begin(c->units, c->parts, part), end = ht_part_begin(c->units, c->parts, part + 1);
    int64_t left = HT_PACE;
    (void)thread;
    if (c->units_are == WALKS)
        copy_walks(c, begin, end);
    else if (c->units_are == ROWS)
        copy_walk(c, c->x + begin * c->row_step, c->out + begin * c->out_row_step, end - begin, c->n, &left);
    else
        copy_walk(c, c->x + begin * c->step, c->out + begin * c->bytes, c->rows, end - begin, &left);
}

/* Chooses the two loops that are copied together, and how. */
static void choose(copy *c)
{
    enum { LINE = 64 }; /* bytes of a cache line */
    static const rows_fn fills[] = {fill_rows_u8, fill_rows_u16, fill_rows_u32, fill_rows_u64};
    static const rows_fn steps[] = {step_rows_u8, step_rows_u16, step_rows_u32, step_rows_u64};
    static const rows_fn evens[] = {even_rows_u8, even_rows_u16, even_rows_u32, even_rows_u64};
    static const rows_fn transposes[] = {transpose_u8, transpose_u16, transpose_u32, transpose_u64};
    view *v = &c->v;
    int inner = v->rank - 1;
    c->out_step[inner] = c->bytes;
    for (int i = inner; i > 0; i--)
        c->out_step[i - 1] = c->out_step[i] * v->count[i];
    const int64_t row_bytes = v->count[inner] * c->bytes;
    if (inner > 0 && v->step[inner] == c->bytes && (row_bytes == 2 || row_bytes == 4 || row_bytes == 8)) {
        c->bytes = row_bytes;
        inner = --v->rank - 1;
    }
    c->step = v->step[inner];
    c->n = v->count[inner];
    int second = inner - 1, transposed = 0;
    for (int i = 0; i < inner && c->step != 0 && c->step != c->bytes; i++)
        if (v->step[i] == c->bytes) {
            second = i;
            transposed = 1;
        }
    const int size = c->bytes == 1 ? 0 : c->bytes == 2 ? 1 : c->bytes == 4 ? 2 : 3;
    c->rows = second < 0 ? 1 : v->count[second];
    c->row_step = second < 0 ? 0 : v->step[second];
    c->out_row_step = second < 0 ? 0 : c->out_step[second];
    c->copy = transposed ? transposes[size] : c->step == 0 ? fills[size] : c->step == 2 * c->bytes ? evens[size]
                                                                                                 : steps[size];
    if (!transposed && c->step == c->bytes) { /* rows of bytes */
        c->copy = copy_rows;
        c->n *= c->bytes;
        c->bytes = c->step = 1;
    }
    int nearest = -1; /* loop that is innermost in x */
    for (int i = 0; i < inner; i++)
        if (i != second) {
            c->order[c->walks++] = i;
            if (nearest < 0 || llabs(v->step[i]) < llabs(v->step[c->order[nearest]]))
                nearest = c->walks - 1;
        }
    /* A transpose that writes whole cache lines continues in the order of x, so that it also reads whole lines. */
    if (transposed && c->walks > 1 && c->n * c->bytes >= LINE && c->rows * c->bytes < LINE) {
        const int loop = c->order[nearest];
        for (int i = nearest; i + 1 < c->walks; i++)
            c->order[i] = c->order[i + 1];
        c->order[c->walks - 1] = loop;
    }
}

int HT_KERNEL(copy_strided)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 1 || call->in[0]->dtype != call->out[0]->dtype)
        return HT_ERR_OPERAND;
    copy c = {.bytes = ht_element_bytes(call->out[0]->dtype)};
    int64_t offset;
    const int status = read_view(call, &c.v, &offset);
    if (status != HT_OK)
        return status;
    if (c.bytes == 0)
        return HT_ERR_DTYPE;
    if (call->out[0]->size == 0)
        return HT_OK;
    c.x = (const char *)call->in[0]->data + offset * c.bytes;
    c.out = (char *)call->out[0]->data;
    merge(&c.v);
    if (c.v.rank == 0) {
        memcpy(c.out, c.x, (size_t)c.bytes);
        return HT_OK;
    }
    for (int i = 0; i < c.v.rank; i++)
        c.v.step[i] *= c.bytes;
    choose(&c);
    c.units = 1;
    for (int i = 0; i < c.walks; i++)
        c.units *= c.v.count[c.order[i]];
    if (c.units == 1) {
        c.units_are = c.rows > c.n ? ROWS : ELEMENTS;
        c.units = c.rows > c.n ? c.rows : c.n;
    }
    c.parts = ht_parts(call, c.units, 8 * (double)call->out[0]->size);
    ht_parallel(call->team, c.parts, copy_part, &c);
    return HT_OK;
}
