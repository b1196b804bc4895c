/* Elementary functions of float32 vectors, branch-free.
 *
 * Range reduction is that of Cody and Waite ("Software Manual for the Elementary Functions", 1980); the polynomials
 * and rationals were fitted to least maximal relative error (Lawson's reweighted least squares on Chebyshev nodes;
 * each comment names function, interval and the error of the fit before rounding to float32). Measured errors, in
 * units in the last place, over a dense sample of all finite inputs, are in tests/kernels/test_unary.py, which
 * holds every instruction set to them. NaN gives NaN; tanh, erf and expm1 keep the sign of zero.
 */
#ifndef HETERO_VMATH_H
#define HETERO_VMATH_H

#include "vec.h"

#define VM_LOG2E 1.442695041f
#define VM_LN2_HIGH 0.693359375f /* few bits, so that a product with a small integer is exact */
#define VM_LN2_LOW -2.12194440e-4f

/* x * 2^n for whole n in [-252, 252], in two steps, so that both factors exist and results may be subnormal. */
HT_INLINE vf vf_scale2(vf x, vf n)
{
#if defined(__AVX512F__)
    return _mm512_scalef_ps(x, n);
#else
    const vi whole = vf_to_int(n), half = vi_shr(whole, 1);
    const vf first = vi_as_float(vi_shl(vi_add(half, vi_set1(127)), 23));
    const vf second = vi_as_float(vi_shl(vi_add(vi_sub(whole, half), vi_set1(127)), 23));
    return x * first * second;
#endif
}

/* x = n ln 2 + r with |r| <= ln(2) / 2; returns (exp(r) - 1 - r) / r^2. Fit: 3.1e-9 of exp(r). */
HT_INLINE vf vf_exp_reduce_(vf x, vf *n, vf *r)
{
    *n = vf_round(x * vf_set1(VM_LOG2E));
    *r = vf_fnma(*n, vf_set1(VM_LN2_HIGH), x);
    *r = vf_fnma(*n, vf_set1(VM_LN2_LOW), *r);
    vf p = vf_set1(0.0013814596459269524f);
    p = vf_fma(p, *r, vf_set1(0.0083687175065279f));
    p = vf_fma(p, *r, vf_set1(0.04166838899254799f));
    p = vf_fma(p, *r, vf_set1(0.1666652113199234f));
    return vf_fma(p, *r, vf_set1(0.4999999403953552f));
}

HT_INLINE vf vf_exp(vf x)
{
    vf n, r;
    x = vf_min(vf_set1(89.0f), vf_max(vf_set1(-104.0f), x)); /* beyond: infinity and zero */
    const vf p = vf_exp_reduce_(x, &n, &r);
    return vf_scale2(vf_fma(p, r * r, r) + vf_set1(1.0f), n);
}

/* exp(x) for x <= 0, for softmax: cheaper, and results below 2^-126 are zero where scaling in one step needs it. */
HT_INLINE vf vf_exp_nonpositive(vf x)
{
    vf n, r;
#if defined(__AVX512F__)
    const vf p = vf_exp_reduce_(vf_max(vf_set1(-104.0f), x), &n, &r);
    return vf_scale2(vf_fma(p, r * r, r) + vf_set1(1.0f), n);
#else
    const vf p = vf_exp_reduce_(vf_max(vf_set1(-87.3f), x), &n, &r);
    const vf m = vf_fma(p, r * r, r) + vf_set1(1.0f);
    const vf y = vi_as_float(vi_add(vf_bits(m), vi_shl(vf_to_int(n), 23)));
    return vf_select(vf_lt(x, vf_set1(-87.3f)), vf_set1(0.0f), vf_select(vf_isnan(x), x, y));
#endif
}

/* exp(x) - 1 for x <= 88; accurate near zero too. */
HT_INLINE vf vf_expm1(vf x)
{
    vf n, r;
    x = vf_min(vf_set1(88.0f), vf_max(vf_set1(-30.0f), x));
    const vf p = vf_exp_reduce_(x, &n, &r);
    const vf power = vf_scale2(vf_set1(1.0f), n);
    return vf_fma(power, vf_fma(p, r * r, r), power - vf_set1(1.0f));
}

/* Natural logarithm; log(0) = -inf, log(x < 0) = NaN. (log1p(f) - f + f^2 / 2) / f^3 on [sqrt(1/2) - 1, sqrt(2) - 1]:
 * fit 7.5e-10 of log1p(f). */
HT_INLINE vf vf_log(vf x)
{
    const vm tiny = vf_lt(x, vf_set1(0x1p-126f));
    const vf scaled = vf_select(tiny, x * vf_set1(0x1p23f), x); /* makes subnormals normal */
    const vi offset = vi_sub(vf_bits(scaled), vi_set1(0x3f3504f3)); /* bits of sqrt(1/2) */
    const vi exponent = vi_shr(offset, 23);
    const vf m = vi_as_float(vi_add(vi_and(offset, vi_set1(0x007fffff)), vi_set1(0x3f3504f3)));
    const vf n = vi_to_float(exponent) - vf_select(tiny, vf_set1(23.0f), vf_set1(0.0f));
    const vf f = m - vf_set1(1.0f), ff = f * f;
    vf p = vf_set1(0.0674660131f);
    p = vf_fma(p, f, vf_set1(-0.116756409f));
    p = vf_fma(p, f, vf_set1(0.118881747f));
    p = vf_fma(p, f, vf_set1(-0.124055915f));
    p = vf_fma(p, f, vf_set1(0.142195508f));
    p = vf_fma(p, f, vf_set1(-0.166679963f));
    p = vf_fma(p, f, vf_set1(0.200021192f));
    p = vf_fma(p, f, vf_set1(-0.250000089f));
    p = vf_fma(p, f, vf_set1(0.333333135f));
    vf tail = vf_fma(n, vf_set1(VM_LN2_LOW), p * f * ff);
    tail = vf_fnma(vf_set1(0.5f), ff, tail);
    vf y = vf_fma(n, vf_set1(VM_LN2_HIGH), f + tail);
    y = vf_select(vf_lt(x, vf_set1(INFINITY)), y, x); /* inf and NaN give themselves */
    y = vf_select(vf_eq(x, vf_set1(0.0f)), vf_set1(-INFINITY), y);
    return vf_select(vf_lt(x, vf_set1(0.0f)), vf_set1(NAN), y);
}

/* log(1 + t) for 0 <= t <= 1: the rounding error of 1 + t is put back to first order. */
HT_INLINE vf vf_log1p_unit(vf t)
{
    const vf u = vf_set1(1.0f) + t;
    return vf_log(u) + (t - (u - vf_set1(1.0f))) / u;
}

/* tanh(x) = x P(x^2) / Q(x^2) on |x| <= 9.02, beyond which it rounds to 1. Fit: 2.1e-8. */
HT_INLINE vf vf_tanh(vf x)
{
    const vf c = vf_min(vf_set1(9.02f), vf_max(vf_set1(-9.02f), x)), u = c * c;
    vf p = vf_set1(1.33192293e-08f), q = vf_set1(7.76209049e-07f);
    p = vf_fma(p, u, vf_set1(2.05836186e-05f));
    q = vf_fma(q, u, vf_set1(0.000328310736f));
    p = vf_fma(p, u, vf_set1(0.00349404383f));
    q = vf_fma(q, u, vf_set1(0.0258711092f));
    p = vf_fma(p, u, vf_set1(0.133797258f));
    q = vf_fma(q, u, vf_set1(0.467130423f));
    p = vf_fma(p, u, vf_set1(1.0f));
    q = vf_fma(q, u, vf_set1(1.0f));
    const vf y = c * p / q;
    return vf_min(vf_set1(1.0f), vf_max(vf_set1(-1.0f), y));
}

/* erf(x) = x P(x^2) / Q(x^2) on |x| <= 3.925, beyond which it rounds to 1. Fit: 1.9e-8. */
HT_INLINE vf vf_erf(vf x)
{
    const vf u = vf_min(vf_set1(3.925f * 3.925f), x * x);
    vf p = vf_set1(2.04598268e-06f), q = vf_set1(3.80471356e-05f);
    p = vf_fma(p, u, vf_set1(0.000284840207f));
    q = vf_fma(q, u, vf_set1(0.00116385124f));
    p = vf_fma(p, u, vf_set1(0.00377254956f));
    q = vf_fma(q, u, vf_set1(0.0149832051f));
    p = vf_fma(p, u, vf_set1(0.0527692996f));
    q = vf_fma(q, u, vf_set1(0.114182852f));
    p = vf_fma(p, u, vf_set1(0.190594196f));
    q = vf_fma(q, u, vf_set1(0.502242446f));
    p = vf_fma(p, u, vf_set1(1.12837911f));
    q = vf_fma(q, u, vf_set1(1.0f));
    const vf y = x * p / q;
    const vf inside = vf_min(vf_set1(1.0f), vf_max(vf_set1(-1.0f), y));
    return vf_select(vf_le(vf_set1(3.925f), vf_abs(x)), vf_copysign(vf_set1(1.0f), x), inside);
}

/* 1 / (1 + exp(-x)) */
HT_INLINE vf vf_sigmoid(vf x) { return vf_set1(1.0f) / (vf_set1(1.0f) + vf_exp(vf_neg(x))); }

/* log(1 + exp(x)) = max(x, 0) + log1p(exp(-|x|)) */
HT_INLINE vf vf_softplus(vf x)
{
    return vf_max(vf_set1(0.0f), x) + vf_log1p_unit(vf_exp(vf_neg(vf_abs(x))));
}

/* Sine (shift = 0) or cosine (shift = 1) for |x| <= 8192; the error is absolute: 2^-23 or so near the zeros.
 * x = n pi/2 + r. Fits on |r| <= pi/4: 3.6e-9 and 9.9e-14. */
#define VM_SIN_LIMIT 8192.0f
HT_INLINE vf vf_sincos_(vf x, int shift)
{
    const vf n = vf_round(x * vf_set1(0.636619772f));
    vf r = vf_fnma(n, vf_set1(1.5703125f), x);
    r = vf_fnma(n, vf_set1(4.837512969970703e-4f), r);
    r = vf_fnma(n, vf_set1(7.549789954891882e-8f), r);
    const vi quadrant = vi_add(vf_to_int(n), vi_set1(shift));
    const vf u = r * r;
    vf s = vf_set1(-0.000195172979f), c = vf_set1(-2.72102369e-07f);
    s = vf_fma(s, u, vf_set1(0.008332178f));
    c = vf_fma(c, u, vf_set1(2.47995195e-05f));
    s = vf_fma(s, u, vf_set1(-0.166666552f));
    c = vf_fma(c, u, vf_set1(-0.00138888834f));
    s = vf_fma(s * u, r, r);
    c = vf_fma(c, u, vf_set1(0.0416666679f));
    c = vf_fma(c, u * u, vf_fnma(vf_set1(0.5f), u, vf_set1(1.0f)));
    const vf y = vf_select(vi_eq(vi_and(quadrant, vi_set1(1)), vi_set1(0)), s, c);
    return vi_as_float(vi_xor(vf_bits(y), vi_shl(vi_and(quadrant, vi_set1(2)), 30)));
}

#endif
