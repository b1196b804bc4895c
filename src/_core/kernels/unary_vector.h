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
#define GELU_ERF(X)                                                                        \
    X(0.0f, -1.0f, 0.0f, 0.398942351f, 2.62279855e-06f,                                    \
      -0.0664543211f, 0.000243389601f, 0.0108428588f, 0.00158729975f)                      \
    X(-0.753293812f, -0.169970721f, -0.000647349225f, 0.215163901f, 0.129454911f,          \
      -0.00439090375f, -0.0227727033f, -0.00234066811f, 0.00269854441f)                    \
    X(-1.4998889f, -0.100224964f, -0.127472788f, -0.0161706712f, 0.0566802286f,            \
      0.0360847823f, 0.0027216312f, -0.00480459584f, -0.00142587081f)                      \
    X(-2.24972343f, -0.027521437f, -0.0592166297f, -0.0486119948f, -0.012637808f,          \
      0.00769888749f, 0.00718055386f, 0.00167908531f, -0.000412024063f)                    \
    X(-2.99970794f, -0.0040531843f, -0.0119547099f, -0.0155211594f, -0.0110844206f,        \
      -0.00406343723f, 2.47146454e-06f, 0.000787967991f, 0.000355169148f)                  \
    X(-3.75009799f, -0.000331443938f, -0.00123339996f, -0.00212592538f, -0.0022168851f,    \
      -0.00151821331f, -0.000673186034f, -0.000146552571f, 2.26750744e-05f)                \
    X(-4.49999332f, -1.52899865e-05f, -6.8531117e-05f, -0.000145857528f, -0.000194805922f, \
      -0.000181274983f, -0.000123083068f, -6.22874068e-05f, -2.11244751e-05f)              \
    X(-6.25f, 0.0f, -1.34451907e-08f, 6.84326054e-08f, -6.8172352e-07f,                    \
      1.92437415e-06f, -3.28415376e-06f, 2.557264e-06f, -9.69540793e-07f)
#define GELU_TANH(X)                                                                        \
    X(0.0f, -1.0f, 0.0f, 0.398942351f, 2.66910843e-06f,                                     \
      -0.0667823851f, 0.00025217174f, 0.0111067705f, 0.00165860809f)                        \
    X(-0.754032314f, -0.17004022f, -0.000675153511f, 0.214591563f, 0.129196823f,            \
      -0.00378085859f, -0.022756191f, -0.00262700836f, 0.00273232465f)                      \
    X(-1.49996912f, -0.100432366f, -0.127711743f, -0.0152537758f, 0.0566084497f,            \
      0.0353284739f, 0.0028258625f, -0.00449212175f, -0.00145350583f)                       \
    X(-2.25005269f, -0.0271981731f, -0.0599093512f, -0.0491873138f, -0.0119779361f,         \
      0.00819391292f, 0.00692656217f, 0.00145690737f, -0.000371246046f)                     \
    X(-3.00000858f, -0.00363729266f, -0.0115838936f, -0.0158835258f, -0.0116136009f,        \
      -0.00408745557f, 0.000234020903f, 0.000868631061f, 0.000314855803f)                   \
    X(-3.74997878f, -0.00021927226f, -0.000951439783f, -0.00188022514f, -0.00220150687f,    \
      -0.00164585549f, -0.000760130177f, -0.000146409671f, 4.59515686e-05f)                 \
    X(-4.50021458f, -5.13044915e-06f, -2.92885725e-05f, -7.85342199e-05f, -0.000130492583f, \
      -0.000148816704f, -0.000121685684f, -7.24452257e-05f, -2.74571667e-05f)               \
    X(-5.875f, 0.0f, -3.95252675e-09f, 2.74348011e-08f, -3.54444154e-07f,                   \
      1.29018667e-06f, -2.92273444e-06f, 2.99762723e-06f, -1.55777809e-06f)
static piece_table gelu_erf_pieces __attribute__((unused)) = PIECE_TABLE(GELU_ERF);
static piece_table gelu_tanh_pieces __attribute__((unused)) = PIECE_TABLE(GELU_TANH);

HT_INLINE vf gelu(piece_table table, float end, vf v)
{
    const vf t = vf_max(vf_set1(end), vf_neg(vf_abs(v)));
    vf columns[PIECE_COLUMNS + 3];
    piece_columns(table, piece_even(t, 0.75f), columns);
    return (v - vf_min(v, zero())) + piece_value(columns, t, 0);
}

/* gelu of PIECES_TOGETHER vectors; y may be x. */
HT_INLINE void gelus(piece_table table, float end, const float *x, float *y)
{
    vf t[PIECES_TOGETHER], f[PIECES_TOGETHER];
    vi index[PIECES_TOGETHER];
#pragma GCC unroll 4
    for (int j = 0; j < PIECES_TOGETHER; j++) {
        t[j] = vf_max(vf_set1(end), vf_neg(vf_abs(vf_load(x + j * VF_LANES))));
        index[j] = piece_even(t[j], 0.75f);
    }
    piece_values(table, index, t, f);
#pragma GCC unroll 4
    for (int j = 0; j < PIECES_TOGETHER; j++) {
        const vf v = vf_load(x + j * VF_LANES);
        vf_store(y + j * VF_LANES, (v - vf_min(v, zero())) + f[j]);
    }
}

/* t exp(t), rounded once where subnormal, and e = exp(t), for t < 0. */
HT_INLINE vf times_exp(vf t, vf *e)
{
    vf n, r;
    const vf c = vf_max(vf_set1(-110.0f), t); /* beyond: zero */
    const vf p = vf_exp_reduce_(c, &n, &r), m = vf_fma(p, r * r, r) + one();
    *e = vf_scale2(m, n);
    return vf_scale2(c * m, n);
}

/* Swish and Mish are max(x, 0) + f(-|x|), as Gelu is; f of Mish differs for x > 0 and x < 0. Pieces reach down to
 * -8.16; relative error of the fits: 1.2e-8. Below -8 f is a short series in e = exp(t), which few vectors need. */
enum { PIECES_END = -8 };
#define PIECES_WIDTH 0.68f

#define SWISH_PIECES(X)                                                                 \
    X(0.0f, -1.0f, 0.0f, 0.250000119f, 3.47738683e-06f,                                 \
      -0.020799512f, 0.000152780849f, 0.00243888563f, 0.00042151066f)                   \
    X(-1.27990377f, -0.278464317f, -0.000313179771f, 0.108694933f, 0.0488560162f,       \
      0.0047285785f, -0.00296053616f, -0.00130025751f, 0.000259764085f)                 \
    X(-1.69995642f, -0.262593895f, -0.0675598085f, 0.0538916029f, 0.0371237323f,        \
      0.00833622087f, -0.000522512244f, -0.000797112531f, -0.00016725561f)              \
    X(-2.38008046f, -0.201603115f, -0.0998221338f, 0.000896462414f, 0.0157496762f,      \
      0.0064662043f, 0.00111382303f, -7.82744391e-05f, -8.34157836e-05f)                \
    X(-3.40000224f, -0.109804414f, -0.0739628449f, -0.0184451155f, 0.00022802387f,      \
      0.00164440565f, 0.000602356391f, 0.000116554285f, 8.36219897e-06f)                \
    X(-4.75990295f, -0.0404290929f, -0.0315920189f, -0.0112808263f, -0.00220416067f,    \
      -0.000143451427f, 5.77088176e-05f, 2.52932787e-05f, 5.43391161e-06f)              \
    X(-6.11932707f, -0.0134325763f, -0.0112079838f, -0.00448183389f, -0.00111415563f,   \
      -0.000181177224f, -1.59398423e-05f, 1.06766083e-06f, 6.93712991e-07f)             \
    X(-7.47992754f, -0.00421852991f, -0.00365217077f, -0.00154203549f, -0.00041880153f, \
      -8.06640819e-05f, -1.12430871e-05f, -1.023295e-06f, -1.84240019e-08f)
static piece_table swish_pieces __attribute__((unused)) = PIECE_TABLE(SWISH_PIECES);

/* Swish with alpha = 1. */
HT_INLINE vf silu_far(vf t, vf f)
{
    const vm far = vf_lt(t, vf_set1(PIECES_END));
    if (HT_UNLIKELY(vm_any(far))) { /* t / (1 + 1 / e) = t e (1 - e + e^2 - ...) */
        vf e;
        const vf y = times_exp(t, &e);
        f = vf_select(far, vf_fnma(y, vf_fnma(e, e, e), y), f);
    }
    return f;
}

HT_INLINE vf silu(vf v)
{
    vf columns[PIECE_COLUMNS + 3];
    const vf t = vf_neg(vf_abs(v));
    piece_columns(swish_pieces, piece_widening(t, PIECES_WIDTH), columns);
    return (v - vf_min(v, zero())) + silu_far(t, piece_value(columns, t, 0));
}

/* silu of PIECES_TOGETHER vectors; y may be x. */
HT_INLINE void silus(const float *x, float *y)
{
    vf t[PIECES_TOGETHER], f[PIECES_TOGETHER], least = zero();
    vi index[PIECES_TOGETHER];
#pragma GCC unroll 4
    for (int j = 0; j < PIECES_TOGETHER; j++) {
        t[j] = vf_neg(vf_abs(vf_load(x + j * VF_LANES)));
        index[j] = piece_widening(t[j], PIECES_WIDTH);
        least = vf_min(t[j], least); /* NaN is never far */
    }
    piece_values(swish_pieces, index, t, f);
    if (HT_UNLIKELY(vm_any(vf_lt(least, vf_set1(PIECES_END)))))
        for (int j = 0; j < PIECES_TOGETHER; j++)
            f[j] = silu_far(vf_neg(vf_abs(vf_load(x + j * VF_LANES))), f[j]);
#pragma GCC unroll 4
    for (int j = 0; j < PIECES_TOGETHER; j++) {
        const vf v = vf_load(x + j * VF_LANES);
        vf_store(y + j * VF_LANES, (v - vf_min(v, zero())) + f[j]);
    }
}

/* Other alpha than 1, also NaN: as the formula says. */
HT_INLINE vf swish(vf alpha, vf v)
{
    if (HT_UNLIKELY(vm_any(vm_or(vf_isnan(alpha), vm_or(vf_lt(alpha, one()), vf_lt(one(), alpha))))))
        return v / (one() + vf_exp(vf_neg(alpha * v)));
    return silu(v);
}

/* x tanh(log(1 + exp(x))). With e = exp(t), f is t e (1 - e / 2 + ...) for x < 0, and 2 t e^2 (1 - ...) for x > 0.
 * The pieces for x < 0 are centered where f is a float32. For x > 0, f is small beside x, so any centers will do. */
#define MISH_NEGATIVE(X)                                                                \
    X(0.0f, -1.0f, 0.100000001f, 0.320000172f, -0.0159943476f,                          \
      -0.0458031036f, -3.15010802e-05f, 0.00880891923f, 0.0024371699f)                  \
    X(-1.19387281f, -0.308843136f, -0.000384393876f, 0.133178905f, 0.0681819022f,       \
      0.0105125802f, -0.00400685472f, -0.002828066f, -0.000120173368f)                  \
    X(-1.70008266f, -0.282582015f, -0.0891140327f, 0.0487954095f, 0.0421770327f,        \
      0.013036266f, 0.00107721961f, -0.000813873892f, -0.00040765616f)                  \
    X(-2.38012719f, -0.210102886f, -0.111753732f, -0.00600626273f, 0.0143236825f,       \
      0.00712389126f, 0.00176254287f, 0.000168708284f, -6.62320672e-05f)                \
    X(-3.40017843f, -0.111563005f, -0.0768622607f, -0.0206945948f, -0.000823272392f,    \
      0.00134614122f, 0.000573682133f, 0.000138213523f, 2.0349913e-05f)                 \
    X(-4.76017857f, -0.0405919924f, -0.0318900384f, -0.0115434453f, -0.00235303887f,    \
      -0.000204004202f, 3.92198272e-05f, 2.11785464e-05f, 4.95944687e-06f)              \
    X(-6.12018633f, -0.0134376688f, -0.0112272538f, -0.00450344104f, -0.00112817099f,   \
      -0.000187570375f, -1.81859905e-05f, 4.16509522e-07f, 5.52675203e-07f)             \
    X(-7.47992086f, -0.00421974389f, -0.00365441013f, -0.00154410186f, -0.00042006842f, \
      -8.12418439e-05f, -1.1450873e-05f, -1.08826919e-06f, -3.59365053e-08f)
#define MISH_POSITIVE(X)                                                                    \
    X(0.0f, -1.0f, -0.100000001f, 0.320000887f, 0.0160261653f,                              \
      -0.0456091724f, 0.00154313049f, 0.0105212694f, 0.00221905368f)                        \
    X(-1.19387281f, -0.122520179f, -0.0757785216f, 0.0473154671f, 0.0682125688f,            \
      0.0251038838f, -0.00254879263f, -0.00577772502f, 0.00015116499f)                      \
    X(-1.70008266f, -0.079224959f, -0.0842542723f, -0.0184128769f, 0.0208722111f,           \
      0.0182464868f, 0.00557089224f, -0.000537448039f, -0.000960791134f)                    \
    X(-2.38012719f, -0.0339078009f, -0.0473832153f, -0.0271022357f, -0.00526198465f,        \
      0.00286042946f, 0.00262602069f, 0.000971480564f, 0.000114498791f)                     \
    X(-3.40017843f, -0.00708291819f, -0.0116110593f, -0.00897550583f, -0.00417539291f,      \
      -0.00117121439f, -0.000104392799f, 9.32090406e-05f, 5.33218044e-05f)                  \
    X(-4.76017857f, -0.000686398591f, -0.00121684663f, -0.00105758721f, -0.000596028927f,   \
      -0.000241749469f, -7.33922716e-05f, -1.62499909e-05f, -2.07127391e-06f)               \
    X(-6.12018633f, -5.8878828e-05f, -0.000107878324f, -9.79144825e-05f, -5.85535236e-05f,  \
      -2.58351356e-05f, -8.93952165e-06f, -2.60044339e-06f, -5.95622566e-07f)               \
    X(-7.47992086f, -4.75839124e-06f, -8.87524766e-06f, -8.23201572e-06f, -5.05723301e-06f, \
      -2.3085156e-06f, -8.35896515e-07f, -2.61840285e-07f, -6.60616877e-08f)
static piece_table mish_negative __attribute__((unused)) = PIECE_TABLE(MISH_NEGATIVE);
static piece_table mish_positive __attribute__((unused)) = PIECE_TABLE(MISH_POSITIVE);

HT_INLINE vf mish(vf v)
{
    vf columns[PIECE_COLUMNS + 3];
    const vf t = vf_neg(vf_abs(v));
    piece_columns_by_sign(mish_negative, mish_positive, v, piece_widening(t, PIECES_WIDTH), columns);
    vf f = piece_value(columns, t, 1);
    const vm far = vf_lt(t, vf_set1(PIECES_END));
    if (HT_UNLIKELY(vm_any(far))) {
        vf e;
        const vf y = times_exp(t, &e), below = vf_fnma(y, vf_set1(0.5f) * e, y);
        f = vf_select(far, vf_select(vf_lt(v, zero()), below, (y + y) * e), f);
    }
    return (v - vf_min(v, zero())) + f;
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
 * neighbors. */
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
#define HT_UNARY_VECTORS(X)                                      \
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
    X(SWISH, swish(a, v))                                        \
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
