/* The checked build (HETERO_CHECKED in CMakeLists.txt) lets a call touch only its own operands and scratch memory in the
 * arena; the address sanitizer reports anything else, such as an overrun into another value. In the release build,
 * these names stand for nothing. */
#ifndef HETERO_ARENA_GUARD_H
#define HETERO_ARENA_GUARD_H

#include "kernels/elements.h"
#include "kernels/kernel.h"

#if defined(HETERO_CHECKED) && defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>

static inline void ht_arena_open(const char *start, int64_t bytes)
{
    if (start)
        __asan_unpoison_memory_region(start, (size_t)bytes);
}

static inline void ht_arena_open_operand(const ht_tensor *tensor, const char *start, int64_t bytes)
{
    const char *data = tensor ? tensor->data : NULL;
    if (data && data >= start && data < start + bytes)
        __asan_unpoison_memory_region(data, (size_t)(tensor->size * ht_element_bytes(tensor->dtype)));
}

/* Closes the arena, except for the operands of `call` and the scratch memory of its threads, `threads` at most. */
static inline void ht_arena_guard(const ht_call *call, const char *start, int64_t bytes, int threads)
{
    if (!start)
        return;
    __asan_poison_memory_region(start, (size_t)bytes);
    for (int32_t i = 0; i < call->num_in; i++)
        ht_arena_open_operand(call->in[i], start, bytes);
    for (int32_t i = 0; i < call->num_out; i++)
        ht_arena_open_operand(call->out[i], start, bytes);
    for (int thread = 0; thread < threads && call->scratch_bytes > 0; thread++)
        __asan_unpoison_memory_region((const char *)call->scratch + thread * call->scratch_step,
                                      (size_t)call->scratch_bytes);
}
#else
#define ht_arena_open(start, bytes) ((void)0)
#define ht_arena_guard(call, start, bytes, threads) ((void)0)
#endif

#endif
