/* Internal to policy `greedy`: its state, and the parts it is made of. */
#ifndef HETERO_PARTITION_GREEDY_H
#define HETERO_PARTITION_GREEDY_H

#include <assert.h>

#define HG_KEY_STRIDE 8 /* hg_greedy_node begins with the key */
#include "graph.h"
#include "order_list.h"

enum { DOWN = 0, UP = 1 }; /* sides of a candidate, and directions: along the edges, and against them */

/* The state of a vertex in the growth in progress, by side. */
enum {
    UNSEEN = 0,
    CLEAN = 1,   /* a neighbour of the candidate that may still be merged */
    TAINTED = 2, /* outside the candidate for good, and the candidate reaches it (UP: it reaches the candidate) */
    MERGED = 3,
};

/* Vertices are nodes and chosen subgraphs; a subgraph has the number of one of its nodes. A node's data fills one
 * cache line, because growth visits nodes in random order. */
typedef struct {
    uint64_t key; /* in the order of the vertices */
    int32_t vertex;
    int32_t next_member; /* of its chosen subgraph, in a circle */
    int32_t label;       /* its chosen subgraph, or ~device while it is free */
    int32_t rank;        /* in the graph's topological order */
    uint32_t mark[2];    /* by side: 4 * growth + the state in that growth */
    uint32_t begin;      /* its predecessors in hg_greedy_state.rows, which end where its successors begin: */
    uint32_t middle;     /* those end where the next node's predecessors begin */
    int32_t tree[2][2];  /* preorder intervals, see hg_greedy_plant */
    int32_t owner;       /* root of the candidate that covers it, or -1 */
    int32_t next_owned;  /* the next node with the same owner, or -1 */
} hg_greedy_node;
static_assert(sizeof(hg_greedy_node) == HG_KEY_STRIDE * sizeof(uint64_t), "keys have the stride of nodes");

/* A binary heap of vertices, the first in order on top. Items from `ordered` on were added, but are not in the heap
 * yet. */
typedef struct {
    int32_t *item;
    int32_t ordered, count;
} hg_greedy_queue;

typedef struct {
    const hg_graph *g;
    hg_greedy_node *node; /* one more than there are nodes: it heads the order and ends the rows */
    int32_t *rows;        /* of each node, predecessors and successors */
    hg_order_list order;  /* of the vertices */
    int32_t *degree[2];  /* of a subgraph of several nodes: steps to look at its neighbours */

    uint32_t growth; /* number of the growth in progress */
    int32_t *stack;  /* its candidate */
    int32_t size;
    int32_t end[2]; /* by direction: the member that no other precedes in it */
    hg_greedy_queue clean[2], frontier[2]; /* by side: CLEAN ones, and TAINTED ones that were not explored */
    int64_t explored[2];                   /* by side: steps taken to explore */

    hg_greedy_bounds bounds;
    int64_t steps; /* nodes and edges looked at so far, by all growths */
    hg_watch *watch;
} hg_greedy_state;

/* The row of v's neighbours in a direction; *count of them. */
static inline const int32_t *hg_greedy_row(const hg_greedy_state *s, int direction, int32_t v, int32_t *count)
{
    const hg_greedy_node *node = &s->node[v];
    const uint32_t begin = direction == DOWN ? node->middle : node->begin;
    *count = (int32_t)((direction == DOWN ? node[1].begin : node->middle) - begin);
    return s->rows + begin;
}

/* ---- greedy_growth.c ---- */

/* Intervals in two forests that cover the graph: a node's parent in forest DOWN is its last predecessor, in forest UP
 * its first successor. So v reaches w for certain where w's interval lies within v's in forest DOWN, or v's within w's
 * in forest UP. scratch [n]. */
int hg_greedy_plant(hg_greedy_state *s, int32_t *scratch);

/* Grows the candidate of `root`: stack, size, and marks MERGED of both sides. It is complete unless it stops early
 * because twice the nodes that it takes from other owners are more than its nodes and max_covered. */
int hg_greedy_grow(hg_greedy_state *s, int32_t root, int64_t max_covered);

/* Makes the candidate just grown one vertex. */
int hg_greedy_contract(hg_greedy_state *s);

/* ---- greedy_rest.c ---- */

/* Labels from *count on for all nodes that are free: components of equal depth, in linear time. depth, parent [n]. */
int hg_greedy_rest(hg_greedy_state *s, int32_t *count, int32_t *depth, int32_t *parent);

#endif
