/* The unary operations, for the `unary` kernel and as the activation fused into others; unary_codes.h lists them. */
#ifndef HETERO_UNARY_H
#define HETERO_UNARY_H

#include "unary_codes.h"
#include "vec.h"

#define HT_UNARY_CODE(name, code) HT_UNARY_##name = code,
enum { HT_UNARY_CODES(HT_UNARY_CODE) };
#undef HT_UNARY_CODE

/* y[i] = op(x[i]); y may be x. 0, or HT_ERR_OPERAND if `op` is no code below HT_UNARY_SAME_TYPE_END. */
#define ht_unary_f32 HT_SHARED(unary_f32)
int ht_unary_f32(int op, float p0, float p1, const float *x, float *y, int64_t n);

/* The operations that other kernels apply in registers, as min(max(., low), high). */
HT_INLINE int ht_unary_is_clip(int op) { return op == HT_UNARY_NONE || op == HT_UNARY_RELU || op == HT_UNARY_CLIP; }
HT_INLINE void ht_unary_clip_range(int op, float p0, float p1, float *low, float *high)
{
    *low = op == HT_UNARY_CLIP ? p0 : op == HT_UNARY_RELU ? 0.0f : -INFINITY;
    *high = op == HT_UNARY_CLIP ? p1 : INFINITY;
}

#endif
