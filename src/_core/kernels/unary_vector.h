/* The unary operations of float32 as functions of a vector: what the kernel `unary` and chains compute. */
#ifndef HETERO_UNARY_VECTOR_H
#define HETERO_UNARY_VECTOR_H

#include "pieces.h"
#include "unary.h"
#include "vmath.h"

HT_INLINE vf zero(void) { return vf_set1(0.0f); }
HT_INLINE vf one(void) { return vf_set1(1.0f); }
HT_INLINE vf unit_clip(vf v) { return vf_min(one(), vf_max(zero(), v)); }

/* Gelu: x F(x), F a distribution function symmetric about zero, so that gelu(x) = max(x, 0) + gelu(-|x|). For x <= 0 it
 * is piecewise (pieces.h). Pieces are 0.75 wide, so that the minimum (at -0.7518 in the erf form, -0.7525 in the tanh
 * form) lies near the center of the second. Fits: 2.3e-9, in the last piece 1e-9. The last piece ends at its center
 * (-6.25, -5.875) with exactly 0, where the function is -1.3e-9 (-2.6e-10). From x = 0 on, gelu(-|x|) falls by at most
 * half of what x rises. v - min(v, 0) instead of max(v, 0) gives NaN for -inf, as does the formula. */
#define GELU_ERF(X) \
    X(0.0f, -1.0f, 0.0f, 0.398942351f, 2.62279855e-06f, \
      -0.0664543211f, 0.000243389601f, 0.0108428588f, 0.00158729975f) \
    X(-0.753293812f, -0.169970721f, -0.000647349225f, 0.215163901f, 0.129454911f, \
      -0.00439090375f, -0.0227727033f, -0.00234066811f, 0.00269854441f) \
    X(-1.4998889f, -0.100224964f, -0.127472788f, -0.0161706712f, 0.0566802286f, \
      0.0360847823f, 0.0027216312f, -0.00480459584f, -0.00142587081f) \
    X(-2.24972343f, -0.027521437f, -0.0592166297f, -0.0486119948f, -0.012637808f, \
      0.00769888749f, 0.00718055386f, 0.00167908531f, -0.000412024063f) \
    X(-2.99970794f, -0.0040531843f, -0.0119547099f, -0.0155211594f, -0.0110844206f, \
      -0.00406343723f, 2.47146454e-06f, 0.000787967991f, 0.000355169148f) \
    X(-3.75009799f, -0.000331443938f, -0.00123339996f, -0.00212592538f, -0.0022168851f, \
      -0.00151821331f, -0.000673186034f, -0.000146552571f, 2.26750744e-05f) \
    X(-4.49999332f, -1.52899865e-05f, -6.8531117e-05f, -0.000145857528f, -0.000194805922f, \
      -0.000181274983f, -0.000123083068f, -6.22874068e-05f, -2.11244751e-05f) \
    X(-6.25f, 0.0f, -1.34451907e-08f, 6.84326054e-08f, -6.8172352e-07f, \
      1.92437415e-06f, -3.28415376e-06f, 2.557264e-06f, -9.69540793e-07f)
#define GELU_TANH(X) \
    X(0.0f, -1.0f, 0.0f, 0.398942351f, 2.66910843e-06f, \
      -0.0667823851f, 0.00025217174f, 0.0111067705f, 0.00165860809f) \
    X(-0.754032314f, -0.17004022f, -0.000675153511f, 0.214591563f, 0.129196823f, \
      -0.00378085859f, -0.022756191f, -0.00262700836f, 0.00273232465f) \
    X(-1.49996912f, -0.100432366f, -0.127711743f, -0.0152537758f, 0.0566084497f, \
      0.0353284739f, 0.0028258625f, -0.00449212175f, -0.00145350583f) \
    X(-2.25005269f, -0.0271981731f, -0.0599093512f, -0.0491873138f, -0.0119779361f, \
      0.00819391292f, 0.00692656217f, 0.00145690737f, -0.000371246046f) \
    X(-3.00000858f, -0.00363729266f, -0.0115838936f, -0.0158835258f, -0.0116136009f, \
      -0.00408745557f, 0.000234020903f, 0.000868631061f, 0.000314855803f) \
    X(-3.74997878f, -0.00021927226f, -0.000951439783f, -0.00188022514f, -0.00220150687f, \
      -0.00164585549f, -0.000760130177f, -0.000146409671f, 4.59515686e-05f) \
    X(-4.50021458f, -5.13044915e-06f, -2.92885725e-05f, -7.85342199e-05f, -0.000130492583f, \
      -0.000148816704f, -0.000121685684f, -7.24452257e-05f, -2.74571667e-05f) \
    X(-5.875f, 0.0f, -3.95252675e-09f, 2.74348011e-08f, -3.54444154e-07f, \
      1.29018667e-06f, -2.92273444e-06f, 2.99762723e-06f, -1.55777809e-06f)
static piece_table gelu_erf_pieces __attribute__((unused)) = PIECE_TABLE(GELU_ERF);
static piece_table gelu_tanh_pieces __attribute__((unused)) = PIECE_TABLE(GELU_TANH);

HT_INLINE vf gelu(piece_table table, float end, vf v)
{
    const vf t = vf_max(vf_set1(end), vf_neg(vf_abs(v)));
    return (v - vf_min(v, zero())) + piecewise(table, t, 0.75f);
}

/* tanh(log(1 + e)) = n / (n + 2) = 1 - 2 / (n + 2) with e = exp(x) and n = e (e + 2): the first for x < 0, where it is
 * small, the second from 0 on, where 2 / (n + 2) falls where x rises. From x = 20 on nothing is left of it. */
HT_INLINE vf mish(vf v)
{
    const vf c = vf_min(vf_set1(20.0f), v), e = vf_exp(c), n = vf_fma(e, e, e + e);
    const vf q = vf_select(vf_lt(v, zero()), n, vf_set1(2.0f)) / (n + vf_set1(2.0f));
    return vf_fnma(vf_abs(c), q, vf_max(zero(), v));
}

HT_INLINE vf sign(vf v)
{
    const vf s = vf_select(vf_lt(zero(), v), one(), vf_select(vf_lt(v, zero()), vf_set1(-1.0f), zero()));
    return vf_select(vf_isnan(v), v, s);
}

HT_INLINE vf shrink(vf v, vf bias, vf lambda)
{
    const vf low = vf_select(vf_lt(v, vf_neg(lambda)), v + bias, zero());
    return vf_select(vf_lt(lambda, v), v - bias, low);
}

/* Lanes too large for the range reduction go through libm, those alone: results do not depend on an element's
 * neighbours. */
HT_INLINE vf sine(vf v, int shift)
{
    vf y = vf_sincos_(v, shift);
    const vm large = vf_lt(vf_set1(VM_SIN_LIMIT), vf_abs(v));
    if (HT_UNLIKELY(vm_any(large))) {
        float in[VF_LANES], out[VF_LANES];
        vf_store(in, v);
        for (int i = 0; i < VF_LANES; i++)
            out[i] = shift ? cosf(in[i]) : sinf(in[i]);
        y = vf_select(large, vf_load(out), y);
    }
    return y;
}

/* X(code less HT_UNARY_, expression of the vector v and the parameters a and b, vectors too). */
#define HT_UNARY_VECTORS(X) \
    X(RELU, vf_max(zero(), v))                                   \
    X(CLIP, vf_min(b, vf_max(a, v)))                             \
    X(LEAKY_RELU, vf_select(vf_lt(v, zero()), v * a, v))         \
    X(ELU, vf_select(vf_lt(v, zero()), a * vf_expm1(v), v))      \
    X(SELU, b * vf_select(vf_lt(v, zero()), a * vf_expm1(v), v)) \
    X(CELU, vf_select(vf_lt(v, zero()), a * vf_expm1(v / a), v)) \
    X(THRESHOLDED_RELU, vf_select(vf_lt(a, v), v, zero()))       \
    X(SIGMOID, vf_sigmoid(v))                                    \
    X(HARD_SIGMOID, unit_clip(vf_fma(a, v, b)))                  \
    X(HARD_SWISH, v * unit_clip(vf_fma(a, v, b)))                \
    X(SWISH, v / (one() + vf_exp(vf_neg(a * v))))                \
    X(TANH, vf_tanh(v))                                          \
    X(GELU_ERF, gelu(gelu_erf_pieces, -6.25f, v))                \
    X(GELU_TANH, gelu(gelu_tanh_pieces, -5.875f, v))             \
    X(SOFTPLUS, vf_softplus(v))                                  \
    X(SOFTSIGN, vf_softsign(v))                                  \
    X(MISH, mish(v))                                             \
    X(ERF, vf_erf(v))                                            \
    X(EXP, vf_exp(v))                                            \
    X(LOG, vf_log(v))                                            \
    X(SQRT, vf_sqrt(v))                                          \
    X(RECIPROCAL, one() / v)                                     \
    X(ABS, vf_abs(v))                                            \
    X(NEG, vf_neg(v))                                            \
    X(FLOOR, vf_floor(v))                                        \
    X(CEIL, vf_ceil(v))                                          \
    X(ROUND, vf_round(v))                                        \
    X(SIGN, sign(v))                                             \
    X(SIN, sine(v, 0))                                           \
    X(COS, sine(v, 1))                                           \
    X(SHRINK, shrink(v, a, b))

#endif
