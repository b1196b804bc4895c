/* out = a strided view of in: slice, split, transpose, expand, tile, depth-to-space are all this one copy.
 *
 * Operands: in x; out of the same dtype. Parameters: ints = offset, rank, count[rank], step[rank], outermost first, in
 * elements of x; steps may be 0 (repeat) or negative (reverse). The counts' product is out's size; rank <= 16.
 * Every address is checked against x's size before the first copy.
 *
 * Dimensions are merged where the view walks two as one. What remains is copied as rows (innermost step 1), as fills
 * (step 0), as blocked transposes (some other step is 1), or element by element.
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

int HT_KERNEL(copy_strided)(const ht_call *call)
{
    if (call->num_in != 1 || call->num_out != 1 || call->in[0]->dtype != call->out[0]->dtype)
        return HT_ERR_OPERAND;
    view v;
    int64_t offset;
    const int status = read_view(call, &v, &offset);
    if (status != HT_OK)
        return status;
    const int64_t bytes = ht_element_bytes(call->out[0]->dtype);
    static const row_fn fill_rows[] = {fill_row_uint8_t, fill_row_uint16_t, fill_row_uint32_t, fill_row_uint64_t};
    static const row_fn copy_rows[] = {copy_row_uint8_t, copy_row_uint16_t, copy_row_uint32_t, copy_row_uint64_t};
    static const row_fn step_rows[] = {step_row_uint8_t, step_row_uint16_t, step_row_uint32_t, step_row_uint64_t};
    static const transpose_fn transposes[] = {transpose_uint8_t, transpose_uint16_t, transpose_uint32_t,
                                              transpose_uint64_t};
    if (bytes == 0)
        return HT_ERR_DTYPE;
    if (call->out[0]->size == 0)
        return HT_OK;
    const int size_index = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3;
    const char *x = (const char *)call->in[0]->data + offset * bytes;
    char *out = (char *)call->out[0]->data;
    merge(&v);
    if (v.rank == 0) {
        memcpy(out, x, (size_t)bytes);
        return HT_OK;
    }
    const int inner = v.rank - 1;
    const int64_t n = v.count[inner], step = v.step[inner];
    int64_t out_step[MAX_LOOPS];
    out_step[inner] = 1;
    for (int i = inner; i > 0; i--)
        out_step[i - 1] = out_step[i] * v.count[i];
    /* A second loop handled by the innermost routine: the one along which x is contiguous. */
    int second = -1;
    if (step != 0 && step != 1)
        for (int i = 0; i < inner; i++)
            if (v.step[i] == 1)
                second = i;
    const row_fn row = (step == 1 ? copy_rows : step == 0 ? fill_rows : step_rows)[size_index];
    int64_t index[MAX_LOOPS] = {0};
    for (;;) {
        if (second >= 0)
            transposes[size_index](x, out, v.count[second], out_step[second], n, step);
        else
            row(x, out, n, step);
        int loop = inner - 1;
        for (; loop >= 0; loop--) {
            if (loop == second)
                continue;
            x += v.step[loop] * bytes;
            out += out_step[loop] * bytes;
            if (++index[loop] < v.count[loop])
                break;
            x -= v.step[loop] * v.count[loop] * bytes;
            out -= out_step[loop] * v.count[loop] * bytes;
            index[loop] = 0;
        }
        if (loop < 0)
            return HT_OK;
    }
}
