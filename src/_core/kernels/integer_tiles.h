/* Products of 8-bit integers in the tile registers of AMX, for operands as in integer_micro.h. Only if HT_TILES.
 *
 * A block of C has up to 32 rows and 32 columns: two tiles of A times two tiles of B, so that each tile that is loaded takes
 * part in two products. A tile of B is 16 quads of a panel, as it is packed. If a block has 17 to 31 rows, its two tiles of A
 * overlap, and both compute the rows that they share, from the same values. If it has fewer than 16, all tiles of A and C
 * have as many.
 *
 * The last tile along k may extend past the quads: there, one operand must be zero, and the other one may hold any bytes that
 * exist. */
#ifndef HETERO_INTEGER_TILES_H
#define HETERO_INTEGER_TILES_H

#include "integer_micro.h"
#include "tiles.h"

#if HT_TILES

enum {
    HT_TILE_QUADS = 16,        /* of a tile of A or B, along k */
    HT_TILE_K = HT_TILE_QUADS * HT_QUAD,
    HT_TILE_HEIGHT = 16,
    HT_TILE_PAIR = 2 * HT_TILE_HEIGHT, /* rows of a block */
    HT_TILES_LEAST_ROWS = 4    /* with fewer, loading B limits integer_micro.c and tiles alike */
};
_Static_assert(HT_INTEGER_WIDTH == 2 * HT_PANEL && HT_PANEL == 16 && HT_A_QUAD == HT_QUAD, "the tiles of a block");

/* ht_tiles_begin for blocks of up to `rows` rows: tiles 0 to 3 are C, 4 and 5 A, 6 and 7 B. */
HT_INLINE void ht_integer_tiles_begin(int64_t rows)
{
    if (rows >= HT_TILE_HEIGHT) {
        ht_tiles_begin();
        return;
    }
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } low __attribute__((aligned(64))) = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {0}};
    for (int i = 0; i < 8; i++)
        low.rows[i] = (uint8_t)(i < 6 ? rows : HT_TILE_QUADS);
    HT_TILE_FENCE();
    _tile_loadconfig(&low);
}

/* Rows of the next block, if `left` are left of at least `rows`: as few tiles as possible, and none with fewer than 16 rows
 * unless there are fewer. */
HT_INLINE int64_t ht_next_tile_rows(int64_t left)
{
    return left <= HT_TILE_PAIR ? left : left < HT_TILE_PAIR + HT_TILE_HEIGHT ? left - HT_TILE_HEIGHT : HT_TILE_PAIR;
}

typedef struct {
    const uint8_t *a;
    int64_t a_row, a_step;  /* bytes from one row to the next, and from one tile to the next along k */
    const uint8_t *b[2];    /* of each panel: the first tile, and the last one, which may lie elsewhere */
    const uint8_t *last[2];
    int64_t b_row, b_step;  /* likewise */
    int64_t tiles;          /* along k; > 0 */
    const int32_t *start;   /* initial values of C, or NULL: zeros */
    int64_t start_row;      /* bytes; 0: the same for all rows */
    int32_t *c;
    int64_t c_row;          /* bytes */
} ht_tile_product;

/* second: the first row of the second tile of A; unused unless `tall`. */
HT_INLINE void ht_tile_block(const ht_tile_product *t, const int64_t second, const int tall, const int wide,
                             const int windows)
{
    const uint8_t *a = t->a, *b0 = t->b[0], *b1 = t->b[1];
    const int64_t a_row = t->a_row, a_step = t->a_step, b_row = t->b_row, b_step = t->b_step, low = second * a_row;
    HT_TILE_FENCE(); /* the operands are in memory */
    if (t->start) {
        const uint8_t *start = (const uint8_t *)t->start;
        _tile_loadd(0, start, t->start_row);
        if (wide)
            _tile_loadd(1, start + 64, t->start_row);
        if (tall)
            _tile_loadd(2, start + second * t->start_row, t->start_row);
        if (tall && wide)
            _tile_loadd(3, start + second * t->start_row + 64, t->start_row);
    } else {
        _tile_zero(0);
        if (wide)
            _tile_zero(1);
        if (tall)
            _tile_zero(2);
        if (tall && wide)
            _tile_zero(3);
    }
    for (int64_t left = t->tiles; left > 0; left--) {
        if (HT_UNLIKELY(left == 1)) {
            b0 = t->last[0];
            b1 = t->last[1];
        }
        _tile_loadd(6, b0, b_row);
        _tile_loadd(4, a, a_row);
        if (windows)
            _tile_dpbsud(0, 4, 6);
        else
            _tile_dpbusd(0, 4, 6);
        if (wide) {
            _tile_loadd(7, b1, b_row);
            if (windows)
                _tile_dpbsud(1, 4, 7);
            else
                _tile_dpbusd(1, 4, 7);
        }
        if (tall) {
            _tile_loadd(5, a + low, a_row);
            if (windows)
                _tile_dpbsud(2, 5, 6);
            else
                _tile_dpbusd(2, 5, 6);
        }
        if (tall && wide) {
            if (windows)
                _tile_dpbsud(3, 5, 7);
            else
                _tile_dpbusd(3, 5, 7);
        }
        a += a_step;
        b0 += b_step;
        b1 += b_step;
    }
    uint8_t *c = (uint8_t *)t->c;
    _tile_stored(0, c, t->c_row);
    if (wide)
        _tile_stored(1, c + 64, t->c_row);
    if (tall)
        _tile_stored(2, c + second * t->c_row, t->c_row);
    if (tall && wide)
        _tile_stored(3, c + second * t->c_row + 64, t->c_row);
}

/* One block of `rows` rows, for which the tiles are configured, and one panel, or two if `wide`. windows: A is signed and B
 * unsigned, else the other way around. */
HT_INLINE void ht_tiles_multiply(const ht_tile_product *t, int64_t rows, int wide, const int windows)
{
    const int tall = rows > HT_TILE_HEIGHT;
    if (tall && wide)
        ht_tile_block(t, rows - HT_TILE_HEIGHT, 1, 1, windows);
    else if (tall)
        ht_tile_block(t, rows - HT_TILE_HEIGHT, 1, 0, windows);
    else if (wide)
        ht_tile_block(t, 0, 0, 1, windows);
    else
        ht_tile_block(t, 0, 0, 0, windows);
}

#endif

#endif
