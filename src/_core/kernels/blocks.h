/* Division of matrix products and convolutions among threads. */
#ifndef HETERO_BLOCKS_H
#define HETERO_BLOCKS_H

#include "gemm_micro.h"

/* How long a thread waits for the last one, in units. Measured: 0.06 to 0.23, because other programs slow down one
 * processor or the other. */
#define HT_LATE 0.2

/* The time that `units` equal units take, in units. */
HT_INLINE double ht_rounds(int64_t units, int64_t threads) { return (double)ht_ceil_div(units, threads) + HT_LATE; }

/* The time to read a column of B, relative to the time to compute a tile of rows of it. */
#define HT_READING 0.25

/* Cost of an element of A or C that another thread wrote before or reads next, in multiply-adds. It applies to products
 * that are divided by columns, because the nodes around them are divided by rows. Measured on 14 transformers. */
#define HT_FOREIGN 16

/* The minimum cost of a column of weights, which comes from memory, in multiply-adds. */
#define HT_STREAMED 50

/* Matrices of m x n as units of work: blocks of columns times blocks of rows of each matrix. Blocks are multiples of
 * tile_columns and tile_rows, except at the end of a matrix, and differ by at most one of them. */
typedef struct {
    int64_t m, n;
    int64_t tile_rows, tile_columns, tall, wide; /* tall, wide: of a matrix, in tile_rows and tile_columns */
    int64_t column_blocks, row_blocks;
    int64_t units, parts;
} ht_blocks;

typedef struct {
    int64_t matrix, row, rows, column, columns;
} ht_block;

/* The time that a tile of one panel, or of two, takes beyond its share of a tile of three panels, in panels. */
#define HT_ONE_PANEL 0.35
#define HT_TWO_PANELS 0.1

/* The time of `columns` columns in tiles, in columns of full tiles. The last tile can be narrower (ht_next_columns) and
 * then takes longer per column, because it loads each element of A for fewer panels. Measured on 1x1 kernels over rows of
 * 16, 32 and 64. */
HT_INLINE double ht_in_tiles(int64_t columns)
{
    const int64_t panels = ht_ceil_div(columns, HT_PANEL), last = panels % HT_TILE_PANELS;
    const double longer = last == 0 ? 0 : last == 2 ? HT_TWO_PANELS : panels == 1 ? HT_ONE_PANEL : 2 * HT_TWO_PANELS;
    return ((double)panels + longer) * HT_PANEL;
}

/* The next number of blocks to consider. Far apart for large numbers: with many threads, trying each number would take
 * longer than a small product. */
HT_INLINE int64_t ht_next_blocks(int64_t blocks) { return blocks + 1 + blocks / 16; }

/* Divides by whole matrices. If these are too few for all threads, divides by blocks of columns, and if necessary also
 * by blocks of rows. Each block of columns reads all of A, and each block of rows all of B: with rows_first, the latter
 * is cheaper. Blocks of columns are multiples of `grain`: a tile's columns, or a panel of float32, whose tiles can be
 * narrower. max_rows: bounds the rows of a block. cost: total multiply-adds. No size may be 0. */
HT_INLINE ht_blocks ht_divide(const ht_call *call, int64_t matrices, int64_t m, int64_t n, int64_t tile_rows,
                              int64_t grain, int64_t max_rows, double cost, int rows_first)
{
    tile_rows = ht_min64(tile_rows, max_rows);
    ht_blocks b = {.m = m, .n = n, .tile_rows = tile_rows, .tile_columns = grain, .tall = ht_ceil_div(m, tile_rows),
                   .wide = ht_ceil_div(n, grain), .column_blocks = 1};
    const int64_t wanted = ht_wanted(call, cost), parts = ht_ceil_div(wanted, matrices);
    const int64_t threads = wanted > 1 ? ht_team_threads(call->team) : 1;
    if (rows_first) {
        b.row_blocks = ht_min64(b.tall, parts);
        b.column_blocks = ht_min64(b.wide, ht_ceil_div(parts, b.row_blocks));
    } else {
        double least = INFINITY;
        for (int64_t blocks = 1; parts > 1 && blocks <= ht_min64(b.wide, parts + threads);
             blocks = ht_next_blocks(blocks)) {
            const int64_t rows = ht_min64(b.tall, ht_ceil_div(parts, blocks)), columns = ht_ceil_div(b.wide, blocks) * grain;
            const double high = (double)ht_ceil_div(b.tall, rows), wide = grain == HT_PANEL ? ht_in_tiles(columns) : (double)columns;
            const double foreign = blocks > 1 ? HT_FOREIGN * high : 0;
            const double time = ht_rounds(matrices * blocks * rows, threads) * ((high + HT_READING) * wide + foreign);
            if (time <= least * 1.001) {
                least = time;
                b.column_blocks = blocks;
            }
        }
        b.row_blocks = ht_min64(b.tall, ht_ceil_div(parts, b.column_blocks));
    }
    b.row_blocks = ht_max64(b.row_blocks, ht_ceil_div(b.tall, max_rows / tile_rows));
    b.units = matrices * b.column_blocks * b.row_blocks;
    b.parts = ht_parts(call, b.units, cost);
    return b;
}

/* The same for products of bfloat16 (tiled_product.c): the numbers of blocks that take the minimum time. Each block converts
 * its rows and columns, so there are as few as possible. row, column: as for ht_tiled_cost. */
HT_INLINE ht_blocks ht_divide_tiled(const ht_call *call, int64_t matrices, int64_t m, int64_t n, int64_t k,
                                    int64_t max_rows, double row, double column)
{
    enum { GRAIN = HT_TILED_GROUP };
    ht_blocks b = {.m = m, .n = n, .tile_rows = GRAIN, .tile_columns = GRAIN, .tall = ht_ceil_div(m, GRAIN),
                   .wide = ht_ceil_div(n, GRAIN), .column_blocks = 1};
    const double cost = 0.5 * (double)matrices * (double)m * (double)n * (double)k;
    const int64_t wanted = ht_wanted(call, cost), fewest = ht_ceil_div(b.tall, max_rows / GRAIN);
    const int64_t threads = wanted > 1 ? ht_team_threads(call->team) : 1;
    const int64_t most = ht_max64(fewest, ht_ceil_div(wanted, matrices)) + threads;
    b.row_blocks = fewest;
    double least = INFINITY;
    for (int64_t rows = fewest; wanted > 1 && rows <= ht_min64(most, b.tall); rows = ht_next_blocks(rows))
        for (int64_t columns = 1; columns <= ht_min64(most / rows, b.wide); columns = ht_next_blocks(columns)) {
            const double high = (double)(ht_ceil_div(b.tall, rows) * GRAIN), broad = (double)(ht_ceil_div(b.wide, columns) * GRAIN);
            const double foreign = columns > 1 ? HT_FOREIGN * high * (1 + broad / (double)k) : 0;
            const double unit = fmax(ht_tiled_cost((int64_t)high, (int64_t)broad, row, column), HT_STREAMED * broad) + foreign;
            const double time = ht_rounds(matrices * rows * columns, threads) * unit;
            if (time < least * 0.999) {
                least = time;
                b.row_blocks = rows;
                b.column_blocks = columns;
            }
        }
    b.units = matrices * b.column_blocks * b.row_blocks;
    b.parts = ht_parts(call, b.units, cost);
    return b;
}

HT_INLINE ht_block ht_block_of(const ht_blocks *b, int64_t unit)
{
    const int64_t i = unit % b->column_blocks, j = unit / b->column_blocks % b->row_blocks;
    const int64_t column = ht_part_begin(b->wide, b->column_blocks, i) * b->tile_columns;
    const int64_t row = ht_part_begin(b->tall, b->row_blocks, j) * b->tile_rows;
    return (ht_block){unit / b->column_blocks / b->row_blocks, row,
                      ht_min64(b->m, ht_part_begin(b->tall, b->row_blocks, j + 1) * b->tile_rows) - row, column,
                      ht_min64(b->n, ht_part_begin(b->wide, b->column_blocks, i + 1) * b->tile_columns) - column};
}

/* The unit that a thread of the team probably takes after `unit` of a part, or -1: the caller takes parts in ascending
 * order, the other threads in descending order (team.c). A hint for prefetching. */
HT_INLINE int64_t ht_next_unit(int64_t units, int64_t parts, int64_t part, int64_t unit, int thread)
{
    if (thread == 0 || unit + 1 < ht_part_begin(units, parts, part + 1))
        return unit + 1 < units ? unit + 1 : -1;
    return part > 0 ? ht_part_begin(units, parts, part - 1) : -1;
}

#endif
