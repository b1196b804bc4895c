/* Division of matrix products among threads. */
#ifndef HETERO_BLOCKS_H
#define HETERO_BLOCKS_H

#include "vec.h"

/* Matrices of m x n as units of work: blocks of columns times blocks of rows of each matrix. */
typedef struct {
    int64_t m, n;
    int64_t column_blocks, row_blocks, block_columns, block_rows;
    int64_t units, parts;
} ht_blocks;

typedef struct {
    int64_t matrix, row, rows, column, columns;
} ht_block;

/* Divides by whole matrices. If these are too few for all threads, divides by blocks of columns, and if necessary also
 * by blocks of rows, in multiples of a tile. most_rows: largest number of rows of a block. cost: total multiply-adds.
 * No size may be 0. */
HT_INLINE ht_blocks ht_divide(const ht_call *call, int64_t matrices, int64_t m, int64_t n, int64_t tile_rows,
                              int64_t tile_columns, int64_t max_rows, double cost)
{
    ht_blocks b = {.m = m, .n = n};
    const int64_t parts = ht_ceil_div(ht_wanted(call, cost), matrices);
    const int64_t wide = ht_ceil_div(n, tile_columns), tall = ht_ceil_div(m, tile_rows);
    b.block_columns = ht_ceil_div(wide, ht_min64(wide, parts)) * tile_columns;
    b.column_blocks = ht_ceil_div(n, b.block_columns);
    b.block_rows = ht_ceil_div(tall, ht_min64(tall, ht_ceil_div(parts, b.column_blocks))) * tile_rows;
    b.block_rows = ht_min64(b.block_rows, max_rows);
    b.row_blocks = ht_ceil_div(m, b.block_rows);
    b.units = matrices * b.column_blocks * b.row_blocks;
    b.parts = ht_parts(call, b.units, cost);
    return b;
}

HT_INLINE ht_block ht_block_of(const ht_blocks *b, int64_t unit)
{
    const int64_t column = unit % b->column_blocks * b->block_columns;
    const int64_t row = unit / b->column_blocks % b->row_blocks * b->block_rows;
    return (ht_block){unit / b->column_blocks / b->row_blocks, row, ht_min64(b->block_rows, b->m - row), column,
                      ht_min64(b->block_columns, b->n - column)};
}

#endif
