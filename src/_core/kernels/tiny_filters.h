/* Scratch memory of conv_integer. */
#ifndef HETERO_TINY_FILTERS_H
#define HETERO_TINY_FILTERS_H

#include "layouts.h"

/* Of expanded filters (conv_integer.c): 16 bytes for each quad that is left, at most one of 6, then five filters with 32 bytes
 * for each quad. */
static inline int64_t ht_left_bytes(int64_t steps) { return (steps * 5 / 6 * 16 + 63) / 64 * 64; }
static inline int64_t ht_expanded_bytes(int64_t steps) { return ht_left_bytes(steps) + 5 * 32 * (steps + 1); }

/* Offsets of the quads and one more, in whole lines. */
static inline int64_t ht_offset_bytes(int64_t steps) { return (8 * (steps + 1) + 63) / 64 * 64; }

/* The offsets, and what ht_scratch_conv_integer counts or expanded filters. */
static inline int64_t ht_scratch_filters(int64_t steps, int64_t pixels)
{
    const int64_t windows = ht_scratch_conv_integer(steps, pixels), expanded = ht_expanded_bytes(steps);
    return ht_offset_bytes(steps) + (windows > expanded ? windows : expanded);
}

#endif
