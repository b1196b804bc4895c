/* Internal to policy `greedy`: its state, and the parts it is made of. */
#ifndef HETERO_PARTITION_GREEDY_H
#define HETERO_PARTITION_GREEDY_H

#include "graph.h"
#include "order_list.h"

enum { DOWN = 0, UP = 1 }; /* sides of a candidate, and directions: along the edges, and against them */

/* What the growth in progress knows of a vertex, by side. */
enum {
    UNSEEN = 0,
    CLEAN = 1,   /* a neighbour of the candidate that may still be merged */
    TAINTED = 2, /* outside the candidate for good, and the candidate reaches it (UP: it reaches the candidate) */
    MERGED = 3,
};

/* Vertices are nodes and chosen subgraphs; a subgraph goes by the name of one of its nodes. Half a cache line. */
typedef struct {
    int32_t vertex;
    int32_t next_member; /* of its chosen subgraph, in a circle */
    int32_t label;       /* its chosen subgraph, or ~device while it is free */
    int32_t rank;        /* in the graph's topological order */
    int32_t owner;       /* root of the candidate that covers it, or -1 */
    int32_t next_owned;
    uint32_t mark[2]; /* by side: 4 * growth + what that growth knows */
} hg_greedy_node;

/* A heap of vertices, the next to be looked at first; what is behind `ordered` is not part of the heap yet. */
typedef struct {
    int32_t *item;
    int32_t ordered, count;
} hg_greedy_queue;

typedef struct {
    const hg_graph *g;
    const int32_t *start[2], *row[2]; /* rows of the graph, by direction */
    hg_greedy_node *node;
    hg_order_list order; /* of the vertices */
    int32_t *degree[2];  /* of a subgraph of several nodes: edges out of, and into, its nodes */
    int32_t (*tree[2])[2]; /* by direction and node: preorder interval in a forest, see hg_greedy_plant */

    uint32_t growth; /* number of the growth in progress */
    int32_t *stack;  /* its candidate */
    int32_t size;
    int32_t end[2]; /* by direction: the member that no other precedes in it */
    hg_greedy_queue clean[2], frontier[2]; /* by side: CLEAN ones, and TAINTED ones that were not explored */
    int32_t *explored[2];                  /* by side: TAINTED ones that were */
    int32_t num_explored[2];
    int64_t explored_edges[2];

    int64_t edges_first, edges_each; /* see hg_greedy_grow */
    int64_t steps;                   /* edges looked at so far */
    hg_watch *watch;
} hg_greedy_state;

/* ---- greedy_growth.c ---- */

/* Intervals in two forests that cover the graph: a node's parent in tree[DOWN] is its last predecessor, in tree[UP]
 * its first successor. So v reaches w for certain where w's interval lies within v's in tree[DOWN], or v's within w's
 * in tree[UP]. scratch [n]. */
int hg_greedy_plant(hg_greedy_state *s, int32_t *scratch);

/* Grows the candidate of `root`: stack, size, and marks MERGED of both sides. */
int hg_greedy_grow(hg_greedy_state *s, int32_t root);

/* Makes the candidate just grown one vertex. */
int hg_greedy_contract(hg_greedy_state *s);

/* ---- greedy_rest.c ---- */

/* Labels from *count on for all nodes that are free: components of equal depth, in linear time. depth, parent [n]. */
int hg_greedy_rest(hg_greedy_state *s, int32_t *count, int32_t *depth, int32_t *parent);

#endif
