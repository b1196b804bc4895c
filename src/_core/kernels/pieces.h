/* Piecewise polynomials of float32 vectors: eight pieces; each lane evaluates the piece of its own argument.
 *
 * The piece around a center c is f(t) = h + z P(z) with z = t - c and h = f(c); the piece that reaches t = 0 has c = 0
 * and h = t / 2. Unlike one formula for the whole axis, this keeps neighbors in order, also near a minimum:
 *   - z is exact, and centers are chosen such that f(c) is a float32 to 2^-10 units in the last place;
 *   - rounding errors before the last addition are relative to z P(z), the change since the center, and stay below the
 *     change from one float to the next: pieces are narrow beside |t|, and P is small in the piece at zero (where Mish
 *     needs p0 = 0.1; rounding both its product and its sum would be too much: argument `once`);
 *   - a minimum lies near a center (within 0.002), where P vanishes with the slope;
 *   - a piece that runs out to zero has its center at that end, so that all its terms have the same sign.
 * tests/unary_sweep.py checks this over all inputs, also where two pieces meet; run it after any change of a
 * coefficient. Polynomials are fitted to least maximal error (of Swish and Mish: relative), coefficient by coefficient
 * from the lowest, each rounded to float32 before the next is fitted.
 */
#ifndef HETERO_PIECES_H
#define HETERO_PIECES_H

#include "vec.h"

enum { PIECES = 8, PIECE_DEGREE = 7, PIECE_COLUMNS = PIECE_DEGREE + 2 }; /* columns: c, h, coefficients of P */

/* A table from rows X(c, h, p0, .., p6): by columns where one instruction picks a lane's entry from a vector of eight,
 * else by rows of 64 bytes, of which four are transposed. */
#define PIECE_C(c, h, p0, p1, p2, p3, p4, p5, p6) c,
#define PIECE_H(c, h, p0, p1, p2, p3, p4, p5, p6) h,
#define PIECE_0(c, h, p0, p1, p2, p3, p4, p5, p6) p0,
#define PIECE_1(c, h, p0, p1, p2, p3, p4, p5, p6) p1,
#define PIECE_2(c, h, p0, p1, p2, p3, p4, p5, p6) p2,
#define PIECE_3(c, h, p0, p1, p2, p3, p4, p5, p6) p3,
#define PIECE_4(c, h, p0, p1, p2, p3, p4, p5, p6) p4,
#define PIECE_5(c, h, p0, p1, p2, p3, p4, p5, p6) p5,
#define PIECE_6(c, h, p0, p1, p2, p3, p4, p5, p6) p6,
#define PIECE_ROW(c, h, p0, p1, p2, p3, p4, p5, p6) {c, h, p0, p1, p2, p3, p4, p5, p6},
#if defined(__AVX2__)
typedef const float piece_table[PIECE_COLUMNS][PIECES];
#define PIECE_TABLE(ROWS)                                                                                            \
    {{ROWS(PIECE_C)}, {ROWS(PIECE_H)}, {ROWS(PIECE_0)}, {ROWS(PIECE_1)}, {ROWS(PIECE_2)},                            \
     {ROWS(PIECE_3)}, {ROWS(PIECE_4)}, {ROWS(PIECE_5)}, {ROWS(PIECE_6)}}
#else
typedef const float piece_table[PIECES][16];
#define PIECE_TABLE(ROWS) {ROWS(PIECE_ROW)}
#endif

#if !defined(__AVX2__)
HT_INLINE void piece_transpose(const char *const row[VF_LANES], vf columns[PIECE_COLUMNS + 3])
{
    for (int k = 0; k < PIECE_COLUMNS; k += VF_LANES) {
        for (int i = 0; i < VF_LANES; i++)
            columns[k + i] = vf_load((const float *)(row[i]) + k);
        vf_transpose(columns + k);
    }
}
#endif

#if defined(__AVX2__)
#if defined(__AVX512F__) /* the column twice, for indices of four bits */
HT_INLINE vf piece_column(piece_table table, int k) { return _mm512_broadcast_f32x8(_mm256_loadu_ps(table[k])); }
HT_INLINE vf piece_entries(vf column, vi index) { return _mm512_permutexvar_ps(index, column); }
#else
/* On Zen, picking takes twice as long from memory as from a register. `volatile` keeps a loop from loading all columns
 * before it begins, which then lie in memory again. */
HT_INLINE vf piece_column(piece_table table, int k)
{
    vf column = _mm256_loadu_ps(table[k]);
    __asm__ volatile("" : "+x"(column));
    return column;
}
HT_INLINE vf piece_entries(vf column, vi index) { return _mm256_permutevar8x32_ps(column, index); }
#endif
#endif

/* The columns of each lane's piece; of `index` the low three bits count. */
HT_INLINE void piece_columns(piece_table table, vi index, vf columns[PIECE_COLUMNS + 3])
{
#if defined(__AVX2__)
    for (int k = 0; k < PIECE_COLUMNS; k++)
        columns[k] = piece_entries(piece_column(table, k), index);
#else
    const vi offset = vi_shl(vi_and(index, vi_set1(PIECES - 1)), 6); /* in bytes */
    const char *row[VF_LANES];
    for (int i = 0; i < VF_LANES; i++)
        row[i] = (const char *)table + (uint32_t)offset[i];
    piece_transpose(row, columns);
#endif
}

/* The same from one of two tables, lane by lane: `negative` where v has its sign bit set, else `positive`. Both have
 * the same centers. */
HT_INLINE void piece_columns_by_sign(piece_table negative, piece_table positive, vf v, vi index,
                                     vf columns[PIECE_COLUMNS + 3])
{
#if defined(__AVX512F__)
    const vi low = vi_and(index, vi_set1(PIECES - 1)), high = vi_and(vi_shr(vf_bits(v), 28), vi_set1(PIECES));
    for (int k = 0; k < PIECE_COLUMNS; k++) {
        const vf both = _mm512_castps256_ps512(_mm256_loadu_ps(positive[k]));
        columns[k] = _mm512_permutexvar_ps(vi_or(low, high), _mm512_insertf32x8(both, _mm256_loadu_ps(negative[k]), 1));
    }
#elif defined(__AVX2__)
    columns[0] = piece_entries(piece_column(negative, 0), index);
    for (int k = 1; k < PIECE_COLUMNS; k++) {
        const vf below = piece_entries(piece_column(negative, k), index);
        columns[k] = _mm256_blendv_ps(piece_entries(piece_column(positive, k), index), below, v);
    }
#else
    const vi offset = vi_shl(vi_and(index, vi_set1(PIECES - 1)), 6); /* in bytes */
    const char *row[VF_LANES];
    for (int i = 0; i < VF_LANES; i++)
        row[i] = (const char *)(vf_bits(v)[i] < 0 ? negative : positive) + (uint32_t)offset[i];
    piece_transpose(row, columns);
#endif
}

/* a b + c, rounded to float32 once in every variant. */
HT_INLINE vf fma_once(vf a, vf b, vf c)
{
#if defined(__AVX2__) || defined(__ARM_NEON)
    return vf_fma(a, b, c);
#else
    typedef double wide __attribute__((vector_size(8 * VF_LANES)));
    return __builtin_convertvector(__builtin_convertvector(a, wide) * __builtin_convertvector(b, wide) +
                                       __builtin_convertvector(c, wide),
                                   vf);
#endif
}

/* h + z P(z) from the columns of each lane's piece. h is the larger of t / 2 and its column: the column is -1 for the
 * piece at zero, and above t / 2 for the others. `once`: the last sum of P is rounded once in every variant. */
HT_INLINE vf piece_value(const vf columns[PIECE_COLUMNS], vf t, int once)
{
    const vf z = t - columns[0];
    vf p = columns[PIECE_COLUMNS - 1];
    for (int k = PIECE_COLUMNS - 2; k > 2; k--)
        p = vf_fma(p, z, columns[k]);
    p = once ? fma_once(p, z, columns[2]) : vf_fma(p, z, columns[2]);
    return vf_fma(z, p, vf_max(t * vf_set1(0.5f), columns[1]));
}

#if defined(__AVX2__)
#define PIECES_TOGETHER 4 /* vectors */
#else
#define PIECES_TOGETHER 1
#endif

/* piece_value of PIECES_TOGETHER vectors with the same bits. Each column is loaded once for all of them, and their
 * chains of multiply-adds overlap. */
HT_INLINE void piece_values(piece_table table, const vi *index, const vf *t, vf *f)
{
#if defined(__AVX2__)
#define EACH _Pragma("GCC unroll 4") for (int j = 0; j < PIECES_TOGETHER; j++)
    vf z[PIECES_TOGETHER], column = piece_column(table, 0);
    EACH z[j] = t[j] - piece_entries(column, index[j]);
    column = piece_column(table, PIECE_COLUMNS - 1);
    EACH f[j] = piece_entries(column, index[j]);
#pragma GCC unroll 8
    for (int k = PIECE_COLUMNS - 2; k > 1; k--) {
        column = piece_column(table, k);
        EACH f[j] = vf_fma(f[j], z[j], piece_entries(column, index[j]));
    }
    column = piece_column(table, 1);
    EACH f[j] = vf_fma(z[j], f[j], vf_max(t[j] * vf_set1(0.5f), piece_entries(column, index[j])));
#undef EACH
#else
    vf columns[PIECE_COLUMNS + 3];
    piece_columns(table, index[0], columns);
    f[0] = piece_value(columns, t[0], 0);
#endif
}

/* The piece of t <= 0 where piece n covers -(n + 1/2) width < t < -(n - 1/2) width, and the last one all below that. */
HT_INLINE vi piece_even(vf t, float width)
{
    const vf magic = vf_set1(12582912.0f); /* 1.5 * 2^23: a sum is rounded to an integer in its low bits */
    const vf last = vf_set1(-(PIECES - 1) * width);
    return vf_bits(vf_fma(vf_max(last, t), vf_set1(-1.0f / width), magic));
}

/* The piece of -12 width < t <= 0, where the first four pieces are `width` wide, the others twice that: the low bits
 * of the exponent and the high bits of the mantissa of 2 - t / (2 width), which is from 2 to 8. Below: any piece. */
HT_INLINE vi piece_widening(vf t, float width)
{
    return vi_shr(vf_bits(vf_fma(t, vf_set1(-0.5f / width), vf_set1(2.0f))), 21);
}

#endif
