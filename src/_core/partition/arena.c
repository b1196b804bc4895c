#include "../system.h"

#include "arena.h"

#include "../invariant.h"

#include <string.h>

enum { CACHE_LINE = 64 }; /* bytes; arrays of two passes never share a line */

static char *new_block(size_t *size)
{
    const int is_large = *size >= 4 * (size_t)HT_LARGE_PAGE;
    const size_t alignment = is_large ? (size_t)HT_LARGE_PAGE : CACHE_LINE;
    if (*size > SIZE_MAX - alignment) /* unreached: only a count that overflows comes here, and hg_take refuses it */
        return NULL;
    *size = (*size + alignment - 1) / alignment * alignment;
    char *block = (char *)ht_allocate(alignment, *size);
    if (block && is_large)
        ht_prefer_large_pages(block, *size);
    return block;
}

int hg_arena_open(hg_arena *arena, size_t size)
{
    memset(arena, 0, sizeof *arena);
    arena->size[0] = size < 4096 ? 4096 : size;
    arena->block[0] = new_block(&arena->size[0]);
    arena->blocks = arena->block[0] != NULL;
    return arena->blocks;
}

void hg_arena_close(hg_arena *arena)
{
    for (int i = 0; i < arena->blocks; i++)
        ht_release(arena->block[i]);
    arena->blocks = 0;
}

static void *fail(hg_arena *arena)
{
    arena->failed = 1;
    return NULL;
}

void *hg_take(hg_arena *arena, int64_t count, size_t size)
{
    if (count < 1)
        count = 1;
    if ((uint64_t)count > (SIZE_MAX - CACHE_LINE) / size) /* unreached: counts are products of int32 numbers */
        return fail(arena);
    HT_ASSERT(arena->current >= 0 && arena->current < arena->blocks && arena->used <= arena->size[arena->current]);
    const size_t bytes = ((size_t)count * size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    while (HG_SEPARATE_ARRAYS || arena->size[arena->current] - arena->used < bytes) {
        if (arena->current + 1 == arena->blocks) { /* unreached: the else and the limit, in debug builds */
            if (arena->blocks == HG_ARENA_BLOCKS)
                return fail(arena);
            const size_t last = HG_SEPARATE_ARRAYS ? 0 : arena->size[arena->current];
            arena->size[arena->blocks] = bytes > last ? bytes : last;
            arena->block[arena->blocks] = new_block(&arena->size[arena->blocks]);
            if (!arena->block[arena->blocks])
                return fail(arena);
            arena->blocks++;
        }
        arena->current++;
        arena->used = 0;
        if (HG_SEPARATE_ARRAYS)
            break;
    }
    void *memory = arena->block[arena->current] + arena->used;
    arena->used += bytes;
    HT_ASSERT(((uintptr_t)memory & (CACHE_LINE - 1)) == 0 && arena->used <= arena->size[arena->current]);
    return memory;
}

void hg_shrink(hg_arena *arena, void *array, int64_t count, size_t size)
{
    const char *block = arena->block[arena->current], *begin = (const char *)array;
    if (HG_SEPARATE_ARRAYS || begin < block || begin >= block + arena->used)
        return;
    const size_t bytes = ((size_t)count * size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
    HT_ASSERT((size_t)(begin - block) + bytes <= arena->used);
    arena->used = (size_t)(begin - block) + bytes;
}

void *hg_take_zeroed(hg_arena *arena, int64_t count, size_t size)
{
    void *memory = hg_take(arena, count, size);
    if (memory && count > 0)
        memset(memory, 0, (size_t)count * size);
    return memory;
}
