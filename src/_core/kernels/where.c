/* out = condition ? x : y. Operands: in condition (bool), x, y (one dtype, any); out broadcast of the three shapes.
 * Parameters: none. In place: out may be the memory of x or y if that operand has out's size.
 */
#include "broadcast.h"

/* Elements are only moved, so one loop per element size covers all dtypes. */
#define DEFINE_ROW(T)                                                                                            \
    static void row_##T(const uint8_t *c, const T *x, const T *y, T *out, int64_t n, int64_t cs, int64_t xs,     \
                        int64_t ys)                                                                              \
    {                                                                                                            \
        if (cs == 0) {                                                                                           \
            const T *from = *c ? x : y;                                                                          \
            const int64_t step = *c ? xs : ys;                                                                   \
            _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) out[i] = from[i * step];                        \
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
    }                                                                                                            \
    static void rows_##T(const ht_call *call, const ht_broadcast *loops)                                         \
    {                                                                                                            \
        const uint8_t *c = (const uint8_t *)call->in[0]->data;                                                   \
        const T *x = (const T *)call->in[1]->data, *y = (const T *)call->in[2]->data;                            \
        T *out = (T *)call->out[0]->data;                                                                        \
        int64_t index[HT_MAX_DIMS + 1] = {0}, at[HT_MAX_BROADCAST] = {0};                                        \
        const int64_t n = loops->count[0], *step = loops->step[0];                                               \
        int64_t left = HT_PACE;                                                                                  \
        do {                                                                                                     \
            for (int64_t i = 0; i < n; i += HT_PIECE) {                                                          \
                const int64_t some = n - i < HT_PIECE ? n - i : HT_PIECE;                                        \
                if (ht_paced_stop(&left, some))                                                                  \
                    return;                                                                                      \
                row_##T(c + at[0] + i * step[0], x + at[1] + i * step[1], y + at[2] + i * step[2], out + i,      \
                        some, step[0], step[1], step[2]);                                                        \
            }                                                                                                    \
            out += n;                                                                                            \
        } while (ht_broadcast_next(loops, 3, index, at));                                                        \
    }
DEFINE_ROW(uint8_t)
DEFINE_ROW(uint16_t)
DEFINE_ROW(uint32_t)
DEFINE_ROW(uint64_t)

int HT_KERNEL(where)(const ht_call *call)
{
    if (call->num_in != 3 || call->num_out != 1)
        return HT_ERR_OPERAND;
    const ht_tensor *out = call->out[0];
    if (call->in[0]->dtype != HT_BOOL || call->in[1]->dtype != out->dtype || call->in[2]->dtype != out->dtype)
        return HT_ERR_OPERAND;
    ht_broadcast loops;
    if (ht_broadcast_loops(&loops, call->in, 3, out) != HT_OK)
        return HT_ERR_OPERAND;
    if (out->size == 0)
        return HT_OK;
    switch (ht_element_bytes(out->dtype)) {
    case 1: rows_uint8_t(call, &loops); return HT_OK;
    case 2: rows_uint16_t(call, &loops); return HT_OK;
    case 4: rows_uint32_t(call, &loops); return HT_OK;
    case 8: rows_uint64_t(call, &loops); return HT_OK;
    default: return HT_ERR_DTYPE;
    }
}
