/* The tile registers of Intel's AMX: eight, each of 16 rows of 64 bytes. Only in variants whose compiler flags allow them.
 *
 * A product of tiles adds to C[16][16], of 32 bits, A[16][16 groups] times B[16 groups][16], where a group of 32 bits is
 * four bytes or two bfloat16 that are adjacent along k. See Intel's Software Developer's Manual, volume 1, chapter 18. */
#ifndef HETERO_TILES_H
#define HETERO_TILES_H

#include "vec.h"

#if defined(__AMX_TILE__)
#define HT_TILES 1
#define HT_TILE_BYTES 1024

/* What was written before is in memory, where a tile is loaded from. With GCC, the compiler does not know that _tile_loadd and
 * _tile_loadconfig read memory. */
#define HT_TILE_FENCE() __asm__ volatile("" ::: "memory")

/* Between these two calls the thread may use tiles. Costs some ten cycles; ht_tiles_end frees the system from saving 8 kB
 * whenever it switches threads. */
HT_INLINE void ht_tiles_begin(void)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } whole __attribute__((aligned(64))) = {
        1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    _Static_assert(sizeof whole == 64, "the operand of ldtilecfg");
    _tile_loadconfig(&whole);
}
HT_INLINE void ht_tiles_end(void) { _tile_release(); }
#else
#define HT_TILES 0
#endif

#endif
