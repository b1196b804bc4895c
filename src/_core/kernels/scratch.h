/* Scratch memory of kernel calls. */
#ifndef HETERO_SCRATCH_H
#define HETERO_SCRATCH_H

#include "kernel.h"

/* Bytes of scratch memory with which a kernel runs a call as fast as it can. The call needs its operands' types and dims,
 * its ints and its counts, not the data. 0 also for a call that the kernel would refuse. tiles: whether the instruction
 * set has tile registers (tiles.h); otherwise, the same for every instruction set. */
int64_t ht_scratch_bytes(int kernel, const ht_call *call, int tiles);

#endif
