/* Transposes matrices in square tiles in registers.
 *
 * A tile is one vector wide, at least 16 bytes, and as many elements high. Tiles are processed in strips along the
 * columns of out. A strip is a few cache lines wide in x, so that lines shared by adjacent tiles stay in the L1 cache
 * for any steps. If a matrix is not a multiple of the tile, the last tile of a row or column begins earlier and writes
 * some elements twice. A matrix smaller than a tile is copied element by element.
 */
#include "transpose.h"

#include "vec.h"

#define STRIP_BYTES 256 /* input rows of a strip, as bytes of an output row: four cache lines */

typedef uint8_t vector_u8 __attribute__((vector_size(16)));
typedef uint16_t vector_u16 __attribute__((vector_size(16)));
typedef uint32_t vector_u32 __attribute__((vector_size(16)));
typedef uint64_t vector_u64 __attribute__((vector_size(16)));
typedef uint8_t any_u8;
typedef uint16_t any_u16 __attribute__((aligned(1), may_alias));
typedef uint32_t any_u32 __attribute__((aligned(1), may_alias));
typedef uint64_t any_u64 __attribute__((aligned(1), may_alias));

#define LOW_u8 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_u8 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#define LOW_u16 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_u16 4, 12, 5, 13, 6, 14, 7, 15
#define LOW_u32 0, 4, 1, 5
#define HIGH_u32 2, 6, 3, 7
#define LOW_u64 0, 2
#define HIGH_u64 1, 3

/* Tiles of 16 bytes by N elements. Interleaving rows i and i + N / 2 moves the highest bit of the row number to the
 * lowest of the column number; after log2(N) rounds, rows and columns are exchanged. */
#define DEFINE_TILE(T, N)                                                                                           \
    HT_INLINE void tile_##T##_##N(const char *x, int64_t step, char *out, int64_t out_step)                               \
    {                                                                                                               \
        vector_##T a[N], b[N];                                                                                      \
        for (int k = 0; k < (N); k++)                                                                               \
            memcpy(&a[k], x + k * step, 16);                                                                        \
        _Pragma("GCC unroll 4") for (int done = 1; done < (N); done *= 2)                                           \
        {                                                                                                           \
            _Pragma("GCC unroll 8") for (int i = 0; i < (N) / 2; i++)                                               \
            {                                                                                                       \
                b[2 * i] = HT_SHUFFLE(vector_##T, a[i], a[i + (N) / 2], LOW_##T);                                   \
                b[2 * i + 1] = HT_SHUFFLE(vector_##T, a[i], a[i + (N) / 2], HIGH_##T);                              \
            }                                                                                                       \
            _Pragma("GCC unroll 16") for (int i = 0; i < (N); i++) a[i] = b[i];                                     \
        }                                                                                                           \
        for (int i = 0; i < (N); i++)                                                                               \
            memcpy(out + i * out_step, &a[i], 16);                                                                  \
    }
DEFINE_TILE(u8, 16)
DEFINE_TILE(u16, 8)
DEFINE_TILE(u32, 4)

#if VF_LANES > 4
/* Shuffles preserve the bits of every number, including NaN. */
HT_INLINE void tile_u32_vector(const char *x, int64_t step, char *out, int64_t out_step)
{
    vf r[VF_LANES];
    for (int k = 0; k < VF_LANES; k++)
        memcpy(&r[k], x + k * step, sizeof r[k]);
    vf_transpose(r);
    for (int i = 0; i < VF_LANES; i++)
        memcpy(out + i * out_step, &r[i], sizeof r[i]);
}
#endif

#if defined(__AVX2__)
HT_INLINE void tile_u64_4(const char *x, int64_t step, char *out, int64_t out_step)
{
    __m256d r[4];
    for (int k = 0; k < 4; k++)
        memcpy(&r[k], x + k * step, sizeof r[k]);
    const __m256d a = _mm256_unpacklo_pd(r[0], r[1]), b = _mm256_unpackhi_pd(r[0], r[1]);
    const __m256d c = _mm256_unpacklo_pd(r[2], r[3]), d = _mm256_unpackhi_pd(r[2], r[3]);
    r[0] = _mm256_permute2f128_pd(a, c, 0x20);
    r[1] = _mm256_permute2f128_pd(b, d, 0x20);
    r[2] = _mm256_permute2f128_pd(a, c, 0x31);
    r[3] = _mm256_permute2f128_pd(b, d, 0x31);
    for (int i = 0; i < 4; i++)
        memcpy(out + i * out_step, &r[i], sizeof r[i]);
}
#else
DEFINE_TILE(u64, 2)
#endif

/* A whole matrix of at least SIDE x SIDE elements. */
#define DEFINE_STRIPS(T, TILE, SIDE)                                                                                \
    static void strips_##TILE(const char *x, int64_t step, char *out, int64_t out_step, int64_t rows,               \
                              int64_t columns)                                                                      \
    {                                                                                                               \
        enum { BYTES = sizeof(any_##T), STRIP = STRIP_BYTES / BYTES };                                              \
        for (int64_t strip = 0; strip < rows; strip += STRIP) {                                                     \
            const int64_t end = ht_min64(strip + STRIP, rows);                                                      \
            for (int64_t k = 0; k < columns; k += (SIDE)) {                                                         \
                const int64_t column = ht_min64(k, columns - (SIDE));                                               \
                for (int64_t i = strip; i < end; i += (SIDE)) {                                                     \
                    const int64_t row = ht_min64(i, rows - (SIDE));                                                 \
                    tile_##TILE(x + column * step + row * BYTES, step, out + row * out_step + column * BYTES,       \
                                out_step);                                                                          \
                }                                                                                                   \
            }                                                                                                       \
        }                                                                                                           \
    }
DEFINE_STRIPS(u8, u8_16, 16)
DEFINE_STRIPS(u16, u16_8, 8)
DEFINE_STRIPS(u32, u32_4, 4)
#if VF_LANES > 4
DEFINE_STRIPS(u32, u32_vector, VF_LANES)
#endif
#if defined(__AVX2__)
DEFINE_STRIPS(u64, u64_4, 4)
#else
DEFINE_STRIPS(u64, u64_2, 2)
#endif

/* Interleaves or deinterleaves groups of two, three or four numbers, such as colors. With a constant count, compilers
 * generate vector shuffles. */
#define DEFINE_GROUPS(T, COUNT)                                                                                     \
    static void apart_##T##_##COUNT(const char *x, char *out, int64_t out_step, int64_t columns)                    \
    {                                                                                                               \
        const any_##T *HT_RESTRICT from = (const any_##T *)x;                                                       \
        for (int64_t k = 0; k < columns; k++)                                                                       \
            _Pragma("GCC unroll 4") for (int i = 0; i < (COUNT); i++)((any_##T *)(out + i * out_step))[k] =         \
                from[(COUNT) * k + i];                                                                              \
    }                                                                                                               \
    static void together_##T##_##COUNT(const char *x, int64_t step, char *out, int64_t rows)                        \
    {                                                                                                               \
        any_##T *HT_RESTRICT to = (any_##T *)out;                                                                   \
        for (int64_t i = 0; i < rows; i++)                                                                          \
            _Pragma("GCC unroll 4") for (int k = 0; k < (COUNT); k++) to[(COUNT) * i + k] =                         \
                ((const any_##T *)(x + k * step))[i];                                                               \
    }
#define DEFINE_ALL_GROUPS(T) DEFINE_GROUPS(T, 2) DEFINE_GROUPS(T, 3) DEFINE_GROUPS(T, 4)
DEFINE_ALL_GROUPS(u8)
DEFINE_ALL_GROUPS(u16)
DEFINE_ALL_GROUPS(u32)
DEFINE_ALL_GROUPS(u64)

/* A matrix with a side too short for tiles. */
#define DEFINE_ELEMENTS(T)                                                                                          \
    static void elements_##T(const char *x, int64_t step, char *out, int64_t out_step, int64_t rows,                \
                             int64_t columns)                                                                       \
    {                                                                                                               \
        enum { BYTES = sizeof(any_##T), BLOCK = 512 }; /* so that data that each row reads again stays in the cache */ \
        if (step == rows * BYTES && rows >= 2 && rows <= 4) {                                                       \
            (rows == 2 ? apart_##T##_2 : rows == 3 ? apart_##T##_3 : apart_##T##_4)(x, out, out_step, columns);     \
            return;                                                                                                 \
        }                                                                                                           \
        if (out_step == columns * BYTES && columns >= 2 && columns <= 4) {                                          \
            (columns == 2 ? together_##T##_2 : columns == 3 ? together_##T##_3 : together_##T##_4)(x, step, out, rows); \
            return;                                                                                                 \
        }                                                                                                           \
        for (int64_t block = 0; block < columns; block += BLOCK) {                                                  \
            const int64_t count = ht_min64(BLOCK, columns - block);                                                 \
            for (int64_t i = 0; i < rows; i++) {                                                                    \
                any_##T *to = (any_##T *)(out + i * out_step) + block;                                              \
                const char *from = x + block * step + i * BYTES;                                                    \
                for (int64_t k = 0; k < count; k++)                                                                 \
                    to[k] = *(const any_##T *)(from + k * step);                                                    \
            }                                                                                                       \
        }                                                                                                           \
    }
DEFINE_ELEMENTS(u8)
DEFINE_ELEMENTS(u16)
DEFINE_ELEMENTS(u32)
DEFINE_ELEMENTS(u64)

void HT_SHARED(transpose)(int64_t bytes, const char *x, int64_t step, char *out, int64_t out_step, int64_t rows,
                          int64_t columns)
{
    const int64_t side = ht_min64(rows, columns);
    switch (bytes) {
    case 1: (side < 16 ? elements_u8 : strips_u8_16)(x, step, out, out_step, rows, columns); break;
    case 2: (side < 8 ? elements_u16 : strips_u16_8)(x, step, out, out_step, rows, columns); break;
    case 4:
#if VF_LANES > 4
        if (side >= VF_LANES) {
            strips_u32_vector(x, step, out, out_step, rows, columns);
            break;
        }
#endif
        (side < 4 || (side == 4 && (step == 16 || out_step == 16)) ? elements_u32 : strips_u32_4)(x, step, out, out_step,
                                                                                                rows, columns);
        break;
    default:
#if defined(__AVX2__)
        (side < 4 ? elements_u64 : strips_u64_4)(x, step, out, out_step, rows, columns);
#else
        (side < 2 ? elements_u64 : strips_u64_2)(x, step, out, out_step, rows, columns);
#endif
        break;
    }
}
