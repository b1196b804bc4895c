/* Elementwise kernels of two operands with full NumPy broadcasting: shared by binary_*.c.
 *
 * Operands: in a, b (one dtype); out broadcast of their shapes. Parameters: none.
 * In place: out may be the memory of a or of b if that operand has out's size and element size.
 * A row kernel is called with steps (1,1), (1,0) or (0,1); two single elements use (1,0). Common types have a loop for
 * each, which the compiler vectorizes; rare types have one loop, and a single element is copied into a block before it.
 */
#ifndef HETERO_BINARY_H
#define HETERO_BINARY_H

#include "broadcast.h"

/* Types that models compute with, and the others. BIT_TYPES: where signed and unsigned integers share loops. */
#define HT_COMMON_TYPES(X)             \
    X(HT_FLOAT32, f32, float, float)    \
    X(HT_INT32, i32, int32_t, uint32_t) \
    X(HT_INT64, i64, int64_t, uint64_t)
#define HT_RARE_TYPES(X)                \
    X(HT_FLOAT64, f64, double, double)  \
    X(HT_INT8, i8, int8_t, uint32_t)    \
    X(HT_INT16, i16, int16_t, uint32_t) \
    HT_UNSIGNED_TYPES(X)
#define HT_COMMON_BIT_TYPES(X)            \
    X(HT_FLOAT32, f32, float, float)      \
    X(HT_UINT32, u32, uint32_t, uint32_t) \
    X(HT_UINT64, u64, uint64_t, uint64_t)
#define HT_RARE_BIT_TYPES(X)              \
    X(HT_FLOAT64, f64, double, double)    \
    X(HT_UINT8, u8, uint8_t, uint32_t)    \
    X(HT_UINT16, u16, uint16_t, uint32_t)
#define HT_BIT_TYPES(X) HT_COMMON_BIT_TYPES(X) HT_RARE_BIT_TYPES(X)

/* One row; returns a status, because integer division can fail. `a_step`, `b_step`: 0 or 1, not both 0 if n > 1. */
typedef int (*ht_binary_row)(const void *a, const void *b, void *out, int64_t n, int a_step, int b_step);

/* Define row kernel `row`: out[i] (type R) = EXPR of x, y (type T). ivdep is valid because out may be exactly a or b,
 * never shifted: no iteration reads what another wrote. */
#define HT_BINARY_ROW(row, T, R, EXPR)                                                                         \
    static int row(const void *pa, const void *pb, void *pout, int64_t n, int a_step, int b_step)              \
    {                                                                                                          \
        const T *a = (const T *)pa, *b = (const T *)pb;                                                        \
        R *out = (R *)pout;                                                                                    \
        if (a_step && b_step) {                                                                                \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                               \
            {                                                                                                  \
                const T x = a[i], y = b[i];                                                                    \
                (void)y;                                                                                       \
                out[i] = (R)(EXPR);                                                                            \
            }                                                                                                  \
        } else if (a_step) {                                                                                   \
            const T y = b[0];                                                                                  \
            (void)y;                                                                                           \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                               \
            {                                                                                                  \
                const T x = a[i];                                                                              \
                out[i] = (R)(EXPR);                                                                            \
            }                                                                                                  \
        } else {                                                                                               \
            const T x = a[0];                                                                                  \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                               \
            {                                                                                                  \
                const T y = b[i];                                                                              \
                (void)y;                                                                                       \
                out[i] = (R)(EXPR);                                                                            \
            }                                                                                                  \
        }                                                                                                      \
        return HT_OK;                                                                                          \
    }

/* The same for rare types: a loop over two rows, and a call of it. */
#define HT_BINARY_RARE_ROW(row, T, R, EXPR)                                                                    \
    static void row##_pairs(const void *pa, const void *pb, void *pout, int64_t n)                             \
    {                                                                                                          \
        const T *a = (const T *)pa, *b = (const T *)pb;                                                        \
        R *out = (R *)pout;                                                                                    \
        _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++)                                                   \
        {                                                                                                      \
            const T x = a[i], y = b[i];                                                                        \
            (void)y;                                                                                           \
            out[i] = (R)(EXPR);                                                                                \
        }                                                                                                      \
    }                                                                                                          \
    static int row(const void *a, const void *b, void *out, int64_t n, int a_step, int b_step)                 \
    {                                                                                                          \
        ht_binary_spread(row##_pairs, a, b, out, n, a_step, b_step, sizeof(T), sizeof(R));                     \
        return HT_OK;                                                                                          \
    }

typedef void (*ht_binary_pairs)(const void *a, const void *b, void *out, int64_t n);

static __attribute__((noinline)) void ht_binary_spread(ht_binary_pairs pairs, const char *a, const char *b, char *out,
                                                       int64_t n, int a_step, int b_step, size_t in_bytes,
                                                       size_t out_bytes)
{
    enum { BLOCK = 128 }; /* elements of at most 8 bytes: 1 kB on the stack */
    uint64_t block[BLOCK];
    if (a_step && b_step) {
        pairs(a, b, out, n);
        return;
    }
    for (int64_t i = 0; i < n && i < BLOCK; i++)
        memcpy((char *)block + (size_t)i * in_bytes, a_step ? b : a, in_bytes);
    for (int64_t i = 0; i < n; i += BLOCK)
        pairs(a_step ? a + (size_t)i * in_bytes : (const char *)block, a_step ? (const char *)block : b + (size_t)i * in_bytes,
              out + (size_t)i * out_bytes, n - i < BLOCK ? n - i : BLOCK);
}

/* The same for an EXPR that may fail: it is evaluated only where CHECK, an expression of x and y, gives HT_OK. */
#define HT_BINARY_CHECKED_ROW(row, T, R, CHECK, EXPR)                                                          \
    static int row(const void *pa, const void *pb, void *pout, int64_t n, int a_step, int b_step)              \
    {                                                                                                          \
        const T *a = (const T *)pa, *b = (const T *)pb;                                                        \
        R *out = (R *)pout;                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                      \
            const T x = a[i * a_step], y = b[i * b_step];                                                      \
            const int status = (CHECK);                                                                        \
            if (status != HT_OK)                                                                               \
                return status;                                                                                 \
            out[i] = (R)(EXPR);                                                                                \
        }                                                                                                      \
        return HT_OK;                                                                                          \
    }

/* Runs a row in pieces and stops between them if the run must end. */
static inline int ht_binary_long(ht_binary_row row, const char *a, const char *b, char *out, int64_t n, int a_step,
                                 int b_step, int64_t in_bytes, int64_t out_bytes)
{
    int status = HT_OK;
    for (int64_t i = 0; i < n && status == HT_OK && !ht_stops_at(i); i += HT_PIECE)
        status = row(a + i * a_step * in_bytes, b + i * b_step * in_bytes, out + i * out_bytes,
                     n - i < HT_PIECE ? n - i : HT_PIECE, a_step, b_step);
    return status;
}

/* One row over the whole result, in pieces. */
typedef struct {
    ht_binary_row row;
    const char *a, *b;
    char *out;
    int64_t size, in_bytes, out_bytes, parts;
    int a_step, b_step;
    _Atomic int status;
} ht_binary_pieces;

enum { HT_BINARY_PIECE = 1024 }; /* elements of a unit of work for threads: whole vectors and whole cache lines */

static inline void ht_binary_part(void *context, int64_t part, int thread)
{
    ht_binary_pieces *job = (ht_binary_pieces *)context;
    const int64_t units = (job->size + HT_BINARY_PIECE - 1) / HT_BINARY_PIECE;
    const int64_t begin = ht_part_begin(units, job->parts, part) * HT_BINARY_PIECE;
    const int64_t stop = ht_part_begin(units, job->parts, part + 1) * HT_BINARY_PIECE;
    const int64_t end = stop < job->size ? stop : job->size;
    (void)thread;
    const int status = ht_binary_long(job->row, job->a + begin * job->a_step * job->in_bytes,
                                      job->b + begin * job->b_step * job->in_bytes, job->out + begin * job->out_bytes,
                                      end - begin, job->a_step, job->b_step, job->in_bytes, job->out_bytes);
    if (status != HT_OK)
        job->status = status;
}

static inline int ht_binary_flat(const ht_call *call, ht_binary_row row, int a_step, int b_step, int32_t out_dtype)
{
    ht_tensor *out = call->out[0];
    const int64_t units = (out->size + HT_BINARY_PIECE - 1) / HT_BINARY_PIECE;
    ht_binary_pieces job = {row, (const char *)call->in[0]->data, (const char *)call->in[1]->data, (char *)out->data,
                            out->size, ht_element_bytes(call->in[0]->dtype), ht_element_bytes(out_dtype),
                            ht_parts(call, units, 4 * (double)out->size), a_step, b_step, HT_OK};
    ht_parallel(call->team, job.parts, ht_binary_part, &job);
    return job.status;
}

/* Rows of operands that are broadcast. */
typedef struct {
    const ht_call *call;
    const ht_broadcast *loops;
    ht_binary_row row;
    int64_t in_bytes, out_bytes;
    ht_row_units rows;
    _Atomic int status;
} ht_binary_rows;

static inline void ht_binary_rows_part(void *context, int64_t part, int thread)
{
    ht_binary_rows *job = (ht_binary_rows *)context;
    const ht_broadcast *loops = job->loops;
    const int a_step = (int)loops->step[0][0], b_step = (int)loops->step[0][1];
    int64_t index[HT_MAX_DIMS + 1] = {0}, offset[HT_MAX_BROADCAST], left = HT_PACE;
    ht_row_walk walk = ht_walk_rows(&job->rows, part);
    char *out = (char *)job->call->out[0]->data + walk.row * job->rows.n * job->out_bytes;
    (void)thread;
    ht_broadcast_seek(loops, 2, walk.row, index, offset);
    do {
        const int64_t i = ht_walk_begin(&walk), n = ht_walk_end(&walk) - i;
        if (ht_paced_stop(&left, n))
            return;
        const int status =
            ht_binary_long(job->row, (const char *)job->call->in[0]->data + (offset[0] + i * a_step) * job->in_bytes,
                           (const char *)job->call->in[1]->data + (offset[1] + i * b_step) * job->in_bytes,
                           out + i * job->out_bytes, n, a_step, b_step, job->in_bytes, job->out_bytes);
        if (status != HT_OK) {
            job->status = status;
            return;
        }
        out += job->rows.n * job->out_bytes;
        (void)ht_broadcast_next(loops, 2, index, offset);
    } while (ht_walk_next(&walk));
}

static inline int ht_binary_run(const ht_call *call, ht_binary_row row, int32_t out_dtype)
{
    const ht_tensor *a = call->in[0], *b = call->in[1];
    ht_tensor *out = call->out[0];
    if (row == NULL)
        return HT_ERR_DTYPE;
    if (b->dtype != a->dtype || out->dtype != out_dtype)
        return HT_ERR_OPERAND;
    if (out->size == 0)
        return HT_OK;
    if (a->size == out->size && (b->size == out->size || b->size == 1))
        return ht_binary_flat(call, row, 1, b->size != 1, out_dtype);
    if (b->size == out->size && a->size == 1)
        return ht_binary_flat(call, row, 0, 1, out_dtype);
    ht_broadcast loops;
    if (ht_broadcast_loops(&loops, call->in, 2, out) != HT_OK)
        return HT_ERR_OPERAND;
    ht_binary_rows job = {call, &loops, row, ht_element_bytes(a->dtype), ht_element_bytes(out_dtype),
                          ht_divide_rows(call, out->size / loops.count[0], loops.count[0], 4 * (double)out->size), HT_OK};
    ht_parallel(call->team, job.rows.parts, ht_binary_rows_part, &job);
    return job.status;
}

/* A kernel whose result has the operands' dtype (OUT = dtype) or is bool (OUT = HT_BOOL). `CASES` lists the dtypes, or for
 * LIKE = ht_unsigned(dtype) the unsigned ones for both. */
#define HT_BINARY_KERNEL(name, OUT, LIKE, CASES)                            \
    int HT_KERNEL(name)(const ht_call *call)                                \
    {                                                                       \
        if (call->num_in != 2 || call->num_out != 1)                        \
            return HT_ERR_OPERAND;                                          \
        const int32_t dtype = call->in[0]->dtype;                           \
        ht_binary_row row = NULL;                                           \
        switch (LIKE) {                                                     \
            CASES                                                           \
        default: break;                                                     \
        }                                                                   \
        return ht_binary_run(call, row, OUT);                               \
    }

#endif
