/* The transitive closure of a graph whose chosen subgraphs count as single vertices: a bit row of descendants and one
 * of ancestors for every vertex that is in none yet.
 *
 * Bits are topological ranks of the given graph. A row holds the words from its first to its last bit, without a run
 * of ones at one end: most vertices of most models reach all later vertices except the nearest. Without contraction,
 * rows take at most a triangle for each direction, together n * n / 8 bytes. Contracting a subgraph S changes only the
 * rows of vertices that reach some but not all of S, or that some but not all of S reach. Each such vertex above S
 * gains S and the descendants of S; likewise below. The rows of S itself are freed. */
#ifndef HETERO_PARTITION_CONTRACTED_H
#define HETERO_PARTITION_CONTRACTED_H

#include "graph.h"

typedef struct {
    uint64_t *bits;         /* words first .. end - 1 */
    uint64_t last;          /* below: the last word of all, which is never in bits; above: 0 */
    int32_t first, end;
    int32_t ones, ones_end; /* words of ones. Below: from `end` or later to the last but one; above: before `first` */
} hg_row;

typedef struct {
    int32_t n, words;
    const int32_t *rank, *order; /* topological rank of a node, and the node of a rank */
    hg_row *below, *above;       /* by rank: what it reaches, and what reaches it */
    int64_t bytes;               /* of the bits of all rows */
    uint64_t *set[4];            /* scratch bit sets [words] */
} hg_contracted;

static inline int hg_bit(const uint64_t *set, int32_t i) { return (int)(set[i / 64] >> (i % 64) & 1); }
static inline void hg_set_bit(uint64_t *set, int32_t i) { set[i / 64] |= (uint64_t)1 << (i % 64); }

/* HG_OVER_BUDGET when the rows take more than max_bytes: before they are made where their spans alone tell, else as soon
 * as they do. rank and order are kept. */
int hg_contracted_open(hg_contracted *c, const hg_graph *g, const int32_t *rank, const int32_t *order,
                       int64_t max_bytes, hg_watch *watch);
void hg_contracted_close(hg_contracted *c);

/* Makes the members [size], free so far, one vertex. changed_above and changed_below [words] become the sets of vertices
 * between which paths may be new: every new one leads from the former to the latter. is_free: by node. */
int hg_contract_members(hg_contracted *c, const int32_t *members, int32_t size, const uint8_t *is_free,
                        uint64_t *changed_above, uint64_t *changed_below, hg_watch *watch);

#endif
