/* Sums and extremes of one row of float32, shared by the normalizations, softmax and reductions.
 *
 * Four independent accumulators hide the latency of additions. Sums are taken in float32 within blocks of
 * HT_ROW_BLOCK elements and in float64 across them, so that the error does not grow with the row.
 */
#ifndef HETERO_ROWS_H
#define HETERO_ROWS_H

#include "vec.h"

#define HT_ROW_BLOCK 4096  /* elements summed in float32 before their sum goes to float64: bounds the rounding error */
#define HT_PAIR_WIDTH 1024 /* rows up to here are computed in pairs: two of each of three operands take 24 kB */

/* EXPRESSION: the term to add per vector `v`; lanes past the end of the row are loaded as `filler`. */
#define HT_ROW_SUM(x, n, filler, expression, total)                                                                   \
    do {                                                                                                              \
        for (int64_t block_ = 0; block_ < (n); block_ += HT_ROW_BLOCK) {                                              \
            if (ht_stops_at(block_))                                                                                  \
                break;                                                                                                \
            const int64_t end_ = ht_min64((n), block_ + HT_ROW_BLOCK);                                                \
            int64_t i_ = block_;                                                                                      \
            vf s_[4] = {vf_set1(0.0f), vf_set1(0.0f), vf_set1(0.0f), vf_set1(0.0f)};                                  \
            for (; i_ + 4 * VF_LANES <= end_; i_ += 4 * VF_LANES)                                                     \
                _Pragma("GCC unroll 4") for (int j_ = 0; j_ < 4; j_++)                                                \
                {                                                                                                     \
                    const vf v = vf_load((x) + i_ + j_ * VF_LANES), sum = s_[j_];                                     \
                    s_[j_] = expression;                                                                              \
                }                                                                                                     \
            for (; i_ + VF_LANES <= end_; i_ += VF_LANES) {                                                           \
                const vf v = vf_load((x) + i_), sum = s_[0];                                                          \
                s_[0] = expression;                                                                                   \
            }                                                                                                         \
            if (i_ < end_) {                                                                                          \
                const vf v = vf_load_or((x) + i_, 0, end_ - i_, filler), sum = s_[1];                                 \
                s_[1] = expression;                                                                                   \
            }                                                                                                         \
            total += vf_hsum((s_[0] + s_[1]) + (s_[2] + s_[3]));                                                      \
        }                                                                                                             \
    } while (0)

HT_INLINE double ht_row_sum(const float *x, int64_t n)
{
    double total = 0;
    HT_ROW_SUM(x, n, vf_set1(0.0f), sum + v, total);
    return total;
}

HT_INLINE double ht_row_sum_squares(const float *x, int64_t n)
{
    double total = 0;
    HT_ROW_SUM(x, n, vf_set1(0.0f), vf_fma(v, v, sum), total);
    return total;
}

HT_INLINE double ht_row_sum_magnitudes(const float *x, int64_t n)
{
    double total = 0;
    HT_ROW_SUM(x, n, vf_set1(0.0f), sum + vf_abs(v), total);
    return total;
}

/* Sum of squares about `center`. */
HT_INLINE double ht_row_scatter(const float *x, int64_t n, float center)
{
    const vf c = vf_set1(center);
    double total = 0;
    HT_ROW_SUM(x, n, c, vf_fma(v - c, v - c, sum), total);
    return total;
}

#define HT_FAR_MEAN 8.0 /* standard deviations from 0 */

/* The sum of the differences from `center`. */
static __attribute__((noinline, unused)) double ht_row_shift(const float *x, int64_t n, float center)
{
    const vf c = vf_set1(center);
    double total = 0;
    HT_ROW_SUM(x, n, c, sum + (v - c), total);
    return total;
}

/* Whether a row is so far from 0 that the rounding of its mean, which is relative to the elements, matters. */
HT_INLINE int ht_row_is_far(double variance, float mean)
{
    return variance * (HT_FAR_MEAN * HT_FAR_MEAN) < (double)mean * mean; /* not if one is NaN */
}

/* The biased variance of a row, from that about `mean`, and corrects the mean. `shift`: the mean of the differences from
 * `mean`, whose rounding is relative to the differences: of equal elements, the mean is then the element. */
HT_INLINE double ht_corrected_variance(double variance, double shift, float *mean)
{
    *mean = (float)(*mean + shift);
    return fmax(0, variance - shift * shift);
}

/* The biased variance of a row, from the sum of the squares about its mean, and corrects the mean: another pass over a
 * row far from 0. */
HT_INLINE double ht_row_variance(const float *x, int64_t n, double scatter, float *mean)
{
    const double variance = scatter / (double)n;
    if (HT_LIKELY(!ht_row_is_far(variance, *mean)))
        return variance;
    return ht_corrected_variance(variance, ht_row_shift(x, n, *mean) / (double)n, mean);
}

/* The largest element, -inf for an empty row. A NaN gives NaN if `nan_counts`, else it may be ignored. */
HT_INLINE float ht_row_max(const float *x, int64_t n, const int nan_counts)
{
    const vf least = vf_set1(-INFINITY);
    vf m[4] = {least, least, least, least};
    int64_t i = 0;
    HT_LONG_STEPS(i, 4 * VF_LANES, n)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const vf v = vf_load(x + i + j * VF_LANES);
            m[j] = nan_counts ? vf_max_nan(v, m[j]) : vf_max(v, m[j]);
        }
    for (; i < n; i += VF_LANES) {
        const vf v = vf_load_or(x + i, 0, ht_min64(VF_LANES, n - i), least);
        m[0] = nan_counts ? vf_max_nan(v, m[0]) : vf_max(v, m[0]);
    }
    if (nan_counts)
        return vf_hmax(vf_max_nan(vf_max_nan(m[0], m[1]), vf_max_nan(m[2], m[3])));
    return vf_hmax(vf_max(vf_max(m[0], m[1]), vf_max(m[2], m[3])));
}

/* The smallest element, inf for an empty row; NaN if any element is. */
HT_INLINE float ht_row_min(const float *x, int64_t n)
{
    const vf most = vf_set1(INFINITY);
    vf m[4] = {most, most, most, most};
    int64_t i = 0;
    HT_LONG_STEPS(i, 4 * VF_LANES, n)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            m[j] = vf_min_nan(vf_load(x + i + j * VF_LANES), m[j]);
    for (; i < n; i += VF_LANES)
        m[0] = vf_min_nan(vf_load_or(x + i, 0, ht_min64(VF_LANES, n - i), most), m[0]);
    return vf_hmin(vf_min_nan(vf_min_nan(m[0], m[1]), vf_min_nan(m[2], m[3])));
}

#endif
