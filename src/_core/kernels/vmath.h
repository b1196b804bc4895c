/* Elementary functions of float32 vectors, branch-free.
 *
 * Range reduction is that of Cody and Waite ("Software Manual for the Elementary Functions", 1980); the polynomials
 * and rationals were fitted to least maximal relative error (Lawson's reweighted least squares on Chebyshev nodes;
 * each comment names function, interval and the error of the fit before rounding to float32). tests/unary_sweep.py
 * holds every function to a bound, its limits and its monotonicity, over all 2^32 inputs. NaN gives NaN; odd functions
 * and expm1 keep the sign of zero.
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

/* exp(x) - 1; accurate near zero too. Half of it is computed first, because 2^n may be infinite where exp(x) is not. */
HT_INLINE vf vf_expm1(vf x)
{
    vf n, r;
    x = vf_min(vf_set1(89.0f), vf_max(vf_set1(-30.0f), x)); /* beyond: infinity and -1 */
    const vf p = vf_exp_reduce_(x, &n, &r);
    const vf power = vf_scale2(vf_set1(0.5f), n), half = vf_fma(power, vf_fma(p, r * r, r), power - vf_set1(0.5f));
    return half + half;
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

/* 2^t for |t| <= 125, monotone for t <= -1/2 and for t >= 0 (all floats were compared, with and without fused products):
 * t - n is exact, and there 2^t changes by more from one t to the next than the rounding errors of p r. Between -1/2 and 0
 * floats lie closer, and it may fall where t rises, by one unit in the last place. Adding and taking away 1.5 * 2^23 rounds
 * t to n and leaves n in the low bits. (2^r - 1) / r on |r| <= 1/2: fit 2e-9 of 2^r. NaN gives anything. */
HT_INLINE vf vf_exp2_(vf t)
{
    const vf magic = vf_set1(12582912.0f), k = t + magic, r = t - (k - magic);
    vf p = vf_set1(0.00015353362f);
    p = vf_fma(p, r, vf_set1(0.0013398874f));
    p = vf_fma(p, r, vf_set1(0.009618437f));
    p = vf_fma(p, r, vf_set1(0.055503324f));
    p = vf_fma(p, r, vf_set1(0.24022648f));
    p = vf_fma(p, r, vf_set1(0.6931472f));
    return vi_as_float(vi_add(vf_bits(vf_fma(p, r, vf_set1(1.0f))), vi_shl(vf_bits(k), 23)));
}

/* tanh, monotone and 1 where it rounds to 1. From 0.55 on 1 - 2 / (1 + exp(2 |x|)), all steps of which are monotone;
 * below |x| + |x|^3 P(x^2), whose second term is small: fit 1e-9. */
HT_INLINE vf vf_tanh(vf x)
{
    const vf a = vf_abs(x), u = a * a, one = vf_set1(1.0f);
    const vf power = vf_exp2_(vf_min(vf_set1(30.0f), a * vf_set1(2.885390082f)));
    const vf large = one - vf_set1(2.0f) / (power + one);
    vf p = vf_set1(-0.0062742396f);
    p = vf_fma(p, u, vf_set1(0.02107168f));
    p = vf_fma(p, u, vf_set1(-0.05385231f));
    p = vf_fma(p, u, vf_set1(0.13332586f));
    p = vf_fma(p, u, vf_set1(-0.33333316f));
    const vf small = vf_fma(a * u, p, a);
    return vf_copysign(vf_select(vf_le(vf_set1(0.55f), a), large, small), x); /* NaN is small */
}

/* erf, monotone and 1 where it rounds to 1. From 0.6 on 1 - 2^-R(t) with t = |x|, where R = 2 t + t Q(t) is
 * -log2(erfc(t)), fit to a few 1e-8 of erf, and the rounding errors of Q are smaller than the steps of R. In [1.5, 2) that
 * holds for these coefficients only: after a change run a sweep. Below 0.6 t + t P(t^2), whose second term is small: fit
 * 8e-9. */
HT_INLINE vf vf_erf(vf x)
{
    const vf a = vf_abs(x), t = vf_min(vf_set1(3.95f), a), u = t * t;
    vf q = vf_set1(-0.0002984815f), p = vf_set1(0.0045123626f);
    q = vf_fma(q, t, vf_set1(0.0045743175f));
    p = vf_fma(p, u, vf_set1(-0.02664699f));
    q = vf_fma(q, t, vf_set1(-0.03287448f));
    p = vf_fma(p, u, vf_set1(0.11280992f));
    q = vf_fma(q, t, vf_set1(0.151702121f));
    p = vf_fma(p, u, vf_set1(-0.37612513f));
    q = vf_fma(q, t, vf_set1(0.917221844f));
    p = vf_fma(p, u, vf_set1(0.12837915f));
    q = vf_fma(q, t, vf_set1(-0.371908993f));
    const vf large = vf_set1(1.0f) - vf_exp2_(vf_neg(vf_fma(q, t, t + t)));
    const vf small = vf_fma(p, a, a);
    return vf_copysign(vf_select(vf_le(vf_set1(0.6f), a), large, small), x); /* NaN is small */
}

/* 1 / (1 + exp(-x)) */
HT_INLINE vf vf_sigmoid(vf x) { return vf_set1(1.0f) / (vf_set1(1.0f) + vf_exp(vf_neg(x))); }

/* log(1 + exp(x)), monotone. From |x| = 1 on max(x, 0) + (t + t^2 Q(t)) with t = exp(-|x|): fit 4e-10 of log(1 + t).
 * Below log(2) + (x / 2 + x^2 P(x^2)): fit 7e-11. What is added last is exact or monotone, and the other term is small. */
HT_INLINE vf vf_softplus(vf x)
{
    const vf t = vf_exp(vf_neg(vf_abs(x))), u = x * x;
    vf p = vf_set1(1.6807924e-06f), q = vf_set1(-0.0396582f);
    q = vf_fma(q, t, vf_set1(0.10379911f));
    p = vf_fma(p, u, vf_set1(-2.5879726e-05f));
    q = vf_fma(q, t, vf_set1(-0.15616232f));
    p = vf_fma(p, u, vf_set1(0.00034699406f));
    q = vf_fma(q, t, vf_set1(0.19836234f));
    p = vf_fma(p, u, vf_set1(-0.0052082846f));
    q = vf_fma(q, t, vf_set1(-0.24985972f));
    p = vf_fma(p, u, vf_set1(0.125f));
    q = vf_fma(q, t, vf_set1(0.33332756f));
    q = vf_fma(q, t, vf_set1(-0.4999999f));
    const vf near = vf_set1(0.6931472f) + vf_fma(p, u, x * vf_set1(0.5f));
    const vf far = vf_max(vf_set1(0.0f), x) + vf_fma(q, t * t, t);
    return vf_select(vf_lt(vf_abs(x), vf_set1(1.0f)), near, far); /* NaN is far */
}

/* x / (1 + |x|) within 0.51 units in the last place: in float32 the rounding of the sum makes it fall where x rises. With
 * fused products the first quotient is corrected by its remainder, for s + e = 1 + |x| exactly; without them doubles divide.
 * The infinities give NaN, as by the formula. */
HT_INLINE vf vf_softsign(vf x)
{
#if defined(__AVX2__) || defined(__ARM_NEON)
    const vf one = vf_set1(1.0f), a = vf_abs(x), s = one + a, b = s - one;
    const vf e = (one - (s - b)) + (a - b), y = one / s, q = a * y;
    const vf remainder = vf_fnma(q, e, vf_fnma(q, s, a));
    return vf_copysign(vf_fma(remainder, y, q), x);
#else
    float lanes[VF_LANES];
    vf_store(lanes, x);
    for (int i = 0; i < VF_LANES; i++)
        lanes[i] = (float)((double)lanes[i] / (1.0 + fabs((double)lanes[i])));
    return vf_load(lanes);
#endif
}

/* Sine (shift = 0) or cosine (shift = 1) for |x| <= 8192; the error is absolute: 2^-23 or so near the zeros.
 * x = n pi/2 + r. The sine of r is r + r^3 S(r^2), its cosine 1 + r^2 C(r^2): the second term is small and rounded more
 * finely than the sum, so that results do not waver between neighbors. Fits on |r| <= pi/4: 3.6e-9 and 9.9e-14. */
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
    c = vf_fma(c, u, vf_set1(-0.5f));
    c = vf_fma(c, u, vf_set1(1.0f));
    vf y = vf_select(vi_eq(vi_and(quadrant, vi_set1(1)), vi_set1(0)), s, c);
    y = vi_as_float(vi_xor(vf_bits(y), vi_shl(vi_and(quadrant, vi_set1(2)), 30)));
    return shift ? y : vf_select(vf_eq(x, vf_set1(0.0f)), x, y); /* the sine of -0 is -0 */
}

#endif
