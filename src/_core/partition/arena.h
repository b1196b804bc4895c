/* Scratch memory for a sequence of linear passes: allocated in order, released together.
 *
 * Each pass allocates what it needs. Its caller then releases everything since a mark, so that later passes reuse pages
 * that are already mapped and cached. New pages would take a third of the time of partitioning a million nodes. Large
 * blocks request huge pages.
 *
 * In debug builds, each array is a block, which its release frees: tests of allocation failures reach each of them. */
#ifndef HETERO_PARTITION_ARENA_H
#define HETERO_PARTITION_ARENA_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "../invariant.h"

#ifdef NDEBUG
enum { HG_SEPARATE_ARRAYS = 0, HG_ARENA_BLOCKS = 48 }; /* each at least as large as the one before */
#else
enum { HG_SEPARATE_ARRAYS = 1, HG_ARENA_BLOCKS = 1024 };
#endif

typedef struct {
    char *block[HG_ARENA_BLOCKS];
    size_t size[HG_ARENA_BLOCKS];
    int blocks, current;
    int failed;  /* 1: an array could not be taken. One check suffices for all arrays taken before it */
    size_t used; /* of the current block */
} hg_arena;

typedef struct {
    int current;
    size_t used;
} hg_mark;

/* An arena whose first block has `size` bytes; 0 if out of memory. */
int hg_arena_open(hg_arena *arena, size_t size);
void hg_arena_close(hg_arena *arena);

/* count * size bytes, aligned to a cache line, uninitialized (`zeroed`: zeros); NULL if out of memory. */
void *hg_take(hg_arena *arena, int64_t count, size_t size);
void *hg_take_zeroed(hg_arena *arena, int64_t count, size_t size);
/* Gives back the memory behind the first `count` elements of `array`, and all arrays taken after it; only if it is in the
 * block that was taken from last. */
void hg_shrink(hg_arena *arena, void *array, int64_t count, size_t size);
#define HG_TAKE(arena, type, count) ((type *)hg_take((arena), (count), sizeof(type)))
#define HG_TAKE_ZEROED(arena, type, count) ((type *)hg_take_zeroed((arena), (count), sizeof(type)))

static inline hg_mark hg_arena_mark(const hg_arena *arena) { return (hg_mark){arena->current, arena->used}; }
static inline void hg_arena_release(hg_arena *arena, hg_mark mark)
{
    HT_ASSERT(mark.current < arena->current || (mark.current == arena->current && mark.used <= arena->used));
    while (HG_SEPARATE_ARRAYS && arena->blocks > mark.current + 1)
        free(arena->block[--arena->blocks]);
    arena->current = mark.current;
    arena->used = mark.used;
}

#endif
