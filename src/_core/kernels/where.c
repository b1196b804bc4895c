/* out = condition ? x : y. Operands: in condition (bool), x, y (one dtype, any); out broadcast of the three shapes.
 * Parameters: none. In place: out may be the memory of x or y if that operand has out's size.
 */
#include "broadcast.h"

/* Elements are only moved, so one loop per element size covers all dtypes. */
#define DEFINE_ROW(T)                                                                                            \
    static void row_##T(const uint8_t *c, const void *px, const void *py, void *pout, int64_t n, int64_t cs,     \
                        int64_t xs, int64_t ys)                                                                  \
    {                                                                                                            \
        const T *x = (const T *)px, *y = (const T *)py;                                                          \
        T *out = (T *)pout;                                                                                      \
        if (cs == 0) {                                                                                           \
            const T *from = *c ? x : y;                                                                          \
            if (*c ? xs : ys) {                                                                                  \
                if (from != out)                                                                                 \
                    memcpy(out, from, (size_t)n * sizeof(T));                                                    \
            } else {                                                                                             \
                const T value = *from;                                                                           \
                for (int64_t i = 0; i < n; i++)                                                                  \
                    out[i] = value;                                                                              \
            }                                                                                                    \
        } else if (xs == 1 && ys == 1) {                                                                         \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                                 \
            {                                                                                                    \
                const T u = x[i], v = y[i];                                                                      \
                out[i] = c[i] ? u : v;                                                                           \
            }                                                                                                    \
        } else if (xs == 1) {                                                                                    \
            const T v = *y;                                                                                      \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                                 \
            {                                                                                                    \
                const T u = x[i];                                                                                \
                out[i] = c[i] ? u : v;                                                                           \
            }                                                                                                    \
        } else if (ys == 1) {                                                                                    \
            const T u = *x;                                                                                      \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                                 \
            {                                                                                                    \
                const T v = y[i];                                                                                \
                out[i] = c[i] ? u : v;                                                                           \
            }                                                                                                    \
        } else {                                                                                                 \
            const T u = *x, v = *y;                                                                              \
            for (int64_t i = 0; i < n; i++)                                                                      \
                out[i] = c[i] ? u : v;                                                                           \
        }                                                                                                        \
    }
DEFINE_ROW(uint8_t)
DEFINE_ROW(uint16_t)
DEFINE_ROW(uint32_t)
DEFINE_ROW(uint64_t)

typedef void (*row_fn)(const uint8_t *c, const void *x, const void *y, void *out, int64_t n, int64_t cs, int64_t xs, int64_t ys);

typedef struct {
    const ht_call *call;
    ht_broadcast loops;
    ht_row_units rows;
    row_fn row;
    int64_t bytes;
} selection;

static void where_part(void *context, int64_t part, int thread)
{
    const selection *job = (const selection *)context;
    const int64_t bytes = job->bytes, *step = job->loops.step[0];
    const char *c = (const char *)job->call->in[0]->data, *x = (const char *)job->call->in[1]->data;
    const char *y = (const char *)job->call->in[2]->data;
    int64_t index[HT_MAX_DIMS + 1] = {0}, at[HT_MAX_BROADCAST], left = HT_PACE;
    ht_row_walk walk = ht_walk_rows(&job->rows, part);
    char *out = (char *)job->call->out[0]->data + walk.row * job->rows.n * bytes;
    (void)thread;
    ht_broadcast_seek(&job->loops, 3, walk.row, index, at);
    do {
        const int64_t end = ht_walk_end(&walk);
        for (int64_t i = ht_walk_begin(&walk), n; i < end; i += n) {
            n = end - i < HT_PIECE ? end - i : HT_PIECE;
            if (ht_paced_stop(&left, n))
                return;
            job->row((const uint8_t *)c + at[0] + i * step[0], x + (at[1] + i * step[1]) * bytes,
                     y + (at[2] + i * step[2]) * bytes, out + i * bytes, n, step[0], step[1], step[2]);
        }
        out += job->rows.n * bytes;
        (void)ht_broadcast_next(&job->loops, 3, index, at);
    } while (ht_walk_next(&walk));
}

int HT_KERNEL(where)(const ht_call *call)
{
    if (call->num_in != 3 || call->num_out != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *out = call->out[0];
    if (call->in[0]->dtype != HT_BOOL || call->in[1]->dtype != out->dtype || call->in[2]->dtype != out->dtype)
        return HT_ERR_OPERAND;
    selection job = {.call = call, .bytes = ht_element_bytes(out->dtype)};
    if (ht_broadcast_loops(&job.loops, call->in, 3, out) != HT_OK)
        return HT_ERR_OPERAND;
    if (out->size == 0)
        return HT_OK;
    switch (job.bytes) {
    case 1: job.row = row_uint8_t; break;
    case 2: job.row = row_uint16_t; break;
    case 4: job.row = row_uint32_t; break;
    case 8: job.row = row_uint64_t; break;
    default: return HT_ERR_DTYPE;
    }
    const int64_t n = job.loops.count[0];
    job.rows = ht_divide_rows(call, out->size / n, n, 4 * (double)out->size);
    ht_parallel(call->team, job.rows.parts, where_part, &job);
    return HT_OK;
}
