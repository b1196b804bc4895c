/* Offsets of a program's buffers in its arena. */
#ifndef HETERO_ARENA_LAYOUT_H
#define HETERO_ARENA_LAYOUT_H

#include <stdint.h>

#include "kernels/constants.h"

/* Chooses offsets by liveness: buffer i of bytes[i] lives from call first[i] to call last[i] inclusive; buffers are
 * sorted by first. Buffers that live at the same time do not overlap. Returns the size of the arena in bytes, a
 * multiple of HT_ALIGNMENT; -1 if memory is exhausted, a size is negative or the sum overflows. */
int64_t ht_arena_layout(int64_t num, const int64_t *first, const int64_t *last, const int64_t *bytes,
                        int64_t *offset);

#endif
