/* out = a strided view of in: slice, split, transpose, expand, tile, depth-to-space are all this one copy.
 *
 * Operands: in x; out of the same dtype. Parameters: ints = offset, rank, count[rank], step[rank], outermost first, in
 * elements of x; steps may be 0 (repeat) or negative (reverse). The counts' product is out's size; rank <= 16.
 * Every address is checked against x's size before the first copy.
 *
 * Dimensions are merged where the view walks two as one. What remains is copied as rows (innermost step 1), as fills
 * (step 0), as blocked transposes (some other step is 1), or element by element. Threads take different elements of out.
 */
#include "elements.h"

#include <string.h>

#define MAX_LOOPS 16
#define TILE 16 /* a tile of 16 x 16 elements of up to 8 bytes: 2 kB read and 2 kB written stay in the first cache */

typedef struct {
    int rank;
    int64_t count[MAX_LOOPS], step[MAX_LOOPS]; /* outermost first */
} view;

#define DEFINE_INNER(T)                                                                                             \
    static void fill_row_##T(const char *x, char *out, int64_t n, int64_t step)                                     \
    {                                                                                                               \
        const T value = *(const T *)x;                                                                              \
        T *to = (T *)out;                                                                                           \
        (void)step;                                                                                                 \
        for (int64_t i = 0; i < n; i++)                                                                             \
            to[i] = value;                                                                                          \
    }                                                                                                               \
    static void copy_row_##T(const char *x, char *out, int64_t n, int64_t step)                                     \
    {                                                                                                               \
        const T *from = (const T *)x;                                                                               \
        T *to = (T *)out;                                                                                           \
        (void)step;                                                                                                 \
        if (n * (int64_t)sizeof(T) >= 256)                                                                          \
            memcpy(to, from, (size_t)n * sizeof(T));                                                                \
        else                                                                                                        \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) to[i] = from[i];                                   \
    }                                                                                                               \
    static void step_row_##T(const char *x, char *out, int64_t n, int64_t step)                                     \
    {                                                                                                               \
        const T *from = (const T *)x;                                                                               \
        T *to = (T *)out;                                                                                           \
        for (int64_t i = 0; i < n; i++)                                                                             \
            to[i] = from[i * step];                                                                                 \
    }                                                                                                               \
    static void even_row_##T(const char *x, char *out, int64_t n, int64_t step)                                     \
    {                                                                                                               \
        const T *from = (const T *)x;                                                                               \
        T *to = (T *)out;                                                                                           \
        (void)step;                                                                                                 \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) to[i] = from[2 * i];                                   \
    }                                                                                                               \
    /* out[i * out_step + k] = x[i + k * step]: rows i of out, columns k. */                                        \
    static void transpose_##T(const char *x, char *out, int64_t rows, int64_t out_step, int64_t columns,            \
                              int64_t step)                                                                         \
    {                                                                                                               \
        const T *from = (const T *)x;                                                                               \
        T *to = (T *)out;                                                                                           \
        for (int64_t i = 0; i < rows; i += TILE) {                                                                  \
            const int64_t i_end = i + TILE < rows ? i + TILE : rows;                                                \
            for (int64_t k = 0; k < columns; k += TILE) {                                                           \
                const int64_t k_end = k + TILE < columns ? k + TILE : columns;                                      \
                for (int64_t r = i; r < i_end; r++)                                                                 \
                    for (int64_t c = k; c < k_end; c++)                                                             \
                        to[r * out_step + c] = from[r + c * step];                                                  \
            }                                                                                                       \
        }                                                                                                           \
    }
DEFINE_INNER(uint8_t)
DEFINE_INNER(uint16_t)
DEFINE_INNER(uint32_t)
DEFINE_INNER(uint64_t)

typedef void (*row_fn)(const char *x, char *out, int64_t n, int64_t step);
typedef void (*transpose_fn)(const char *x, char *out, int64_t rows, int64_t out_step, int64_t columns, int64_t step);

/* Drop counts of 1 and merge neighbours. */
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

/* Read the view from the parameters and check that it stays inside x and fills out. */
static int read_view(const ht_call *call, view *v, int64_t *offset)
{
    const ht_tensor *x = call->in[0], *out = call->out[0];
    if (call->num_ints < 2 || call->ints[1] < 0 || call->ints[1] > MAX_LOOPS ||
        call->num_ints != 2 + 2 * call->ints[1])
        return HT_ERR_OPERAND;
    *offset = call->ints[0];
    v->rank = (int)call->ints[1];
    int64_t size = 1, least = *offset, most = *offset;
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
            __builtin_add_overflow(reach < 0 ? least : most, reach, reach < 0 ? &least : &most))
            return HT_ERR_OPERAND;
    }
    if (size != out->size || (size > 0 && (least < 0 || most >= x->size)))
        return HT_ERR_OPERAND;
    return HT_OK;
}

/* A call as units of work: walks of the loops outside the two innermost ones; if there is but one, rows of the
 * transposition or elements of the row. */
typedef struct {
    view v;
    const char *x;
    char *out;
    int64_t bytes, out_step[MAX_LOOPS];
    int second;             /* the loop along which x is contiguous, if the innermost is not; or -1 */
    row_fn row;
    transpose_fn transpose;
    enum { WALKS, ROWS, ELEMENTS } units_are;
    int64_t units, parts;
} copy;

static void copy_walks(const copy *c, int64_t begin, int64_t end)
{
    const view *v = &c->v;
    const int inner = v->rank - 1;
    int64_t index[MAX_LOOPS] = {0}, rest = begin;
    const char *x = c->x;
    char *out = c->out;
    for (int loop = inner - 1; loop >= 0; loop--) {
        if (loop == c->second)
            continue;
        index[loop] = rest % v->count[loop];
        rest /= v->count[loop];
        x += index[loop] * v->step[loop] * c->bytes;
        out += index[loop] * c->out_step[loop] * c->bytes;
    }
    for (int64_t walk = begin; walk < end; walk++) {
        if (c->second >= 0)
            c->transpose(x, out, v->count[c->second], c->out_step[c->second], v->count[inner], v->step[inner]);
        else
            c->row(x, out, v->count[inner], v->step[inner]);
        for (int loop = inner - 1; loop >= 0; loop--) {
            if (loop == c->second)
                continue;
            x += v->step[loop] * c->bytes;
            out += c->out_step[loop] * c->bytes;
            if (++index[loop] < v->count[loop])
                break;
            x -= v->step[loop] * v->count[loop] * c->bytes;
            out -= c->out_step[loop] * v->count[loop] * c->bytes;
            index[loop] = 0;
        }
    }
}

static void copy_part(void *context, int64_t part, int thread)
{
    const copy *c = (const copy *)context;
    const view *v = &c->v;
    const int inner = v->rank - 1;
    const int64_t begin = ht_part_begin(c->units, c->parts, part), end = ht_part_begin(c->units, c->parts, part + 1);
    (void)thread;
    if (c->units_are == WALKS)
        copy_walks(c, begin, end);
    else if (c->units_are == ROWS)
        c->transpose(c->x + begin * c->bytes, c->out + begin * c->out_step[c->second] * c->bytes, end - begin,
                     c->out_step[c->second], v->count[inner], v->step[inner]);
    else
        c->row(c->x + begin * v->step[inner] * c->bytes, c->out + begin * c->bytes, end - begin, v->step[inner]);
}

int HT_KERNEL(copy_strided)(const ht_call *call)
{
    static const row_fn fill_rows[] = {fill_row_uint8_t, fill_row_uint16_t, fill_row_uint32_t, fill_row_uint64_t};
    static const row_fn copy_rows[] = {copy_row_uint8_t, copy_row_uint16_t, copy_row_uint32_t, copy_row_uint64_t};
    static const row_fn step_rows[] = {step_row_uint8_t, step_row_uint16_t, step_row_uint32_t, step_row_uint64_t};
    static const row_fn even_rows[] = {even_row_uint8_t, even_row_uint16_t, even_row_uint32_t, even_row_uint64_t};
    static const transpose_fn transposes[] = {transpose_uint8_t, transpose_uint16_t, transpose_uint32_t,
                                              transpose_uint64_t};
    if (call->num_in != 1 || call->num_out != 1 || call->in[0]->dtype != call->out[0]->dtype)
        return HT_ERR_OPERAND;
    copy c = {.second = -1, .bytes = ht_element_bytes(call->out[0]->dtype)};
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
    view *v = &c.v;
    merge(v);
    if (v->rank == 0) {
        memcpy(c.out, c.x, (size_t)c.bytes);
        return HT_OK;
    }
    const int size_index = c.bytes == 1 ? 0 : c.bytes == 2 ? 1 : c.bytes == 4 ? 2 : 3, inner = v->rank - 1;
    const int64_t step = v->step[inner];
    c.out_step[inner] = 1;
    for (int i = inner; i > 0; i--)
        c.out_step[i - 1] = c.out_step[i] * v->count[i];
    if (step != 0 && step != 1)
        for (int i = 0; i < inner; i++)
            if (v->step[i] == 1)
                c.second = i;
    c.row = (step == 1 ? copy_rows : step == 0 ? fill_rows : step == 2 ? even_rows : step_rows)[size_index];
    c.transpose = transposes[size_index];
    const int64_t rows = c.second < 0 ? 1 : v->count[c.second];
    c.units = call->out[0]->size / v->count[inner] / rows;
    if (c.units == 1) {
        c.units_are = c.second < 0 ? ELEMENTS : ROWS;
        c.units = c.second < 0 ? v->count[inner] : rows;
    }
    c.parts = ht_parts(call, c.units, (double)call->out[0]->size);
    ht_parallel(call->team, c.parts, copy_part, &c);
    return HT_OK;
}
