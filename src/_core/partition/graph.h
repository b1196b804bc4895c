/* Graph algorithms over CSR arrays: the types and every entry point that _graph.pyx calls.
 *
 * Vertices are int32 numbers 0..n-1. Row v of `indices` lists v's successors, of `pred_indices` its predecessors, both
 * strictly ascending. A graph has passed hg_topological_order before any other function sees it, so it is acyclic.
 * Functions return HG_OK or a negative code; outputs are the caller's arrays, scratch memory lives inside the call.
 * No function keeps a pointer, touches a global, or needs the GIL (hg_watch.poll takes it by itself). */
#ifndef HETERO_PARTITION_GRAPH_H
#define HETERO_PARTITION_GRAPH_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../invariant.h"

enum { HG_OK = 0, HG_NO_MEMORY = -1, HG_INTERRUPTED = -2, HG_OVER_BUDGET = -3 };

/* Lets a long computation answer signals: every HG_POLL_EVERY units of work (a few nanoseconds each) it looks at the
 * clock, every HG_POLL_NS nanoseconds it calls poll, and gives up when that returns non-zero. poll takes the GIL, which
 * another thread may hold for milliseconds: hence the clock. */
enum { HG_POLL_EVERY = 1 << 18, HG_POLL_NS = 20000000 };
#ifdef NDEBUG
enum { HG_LOOK_EVERY = 1 << 16 }; /* units of work in hg_interrupted_after */
#else
enum { HG_LOOK_EVERY = 1 };
#endif
typedef struct {
    int (*poll)(void);
    int64_t left;   /* units of work until the next look at the clock */
    int64_t polled; /* nanoseconds; 0: not yet */
} hg_watch;

/* watch.c: the look at the clock. */
int hg_poll(hg_watch *watch);

static inline int hg_interrupted(hg_watch *watch, int64_t work)
{
    watch->left -= work;
    return watch->left <= 0 && hg_poll(watch);
}

/* The same for the tightest loops: units add up in *work, a local variable that starts at 0. In debug builds each call
 * looks at the watch, so that tests on small graphs reach all of them. */
static inline int hg_interrupted_after(hg_watch *watch, int64_t *work, int64_t units)
{
    *work += units;
    if (*work < HG_LOOK_EVERY)
        return 0;
    units = *work;
    *work = 0;
    return hg_interrupted(watch, units);
}

/* The same every 16,384th turn of a loop of which each takes `units`, or four times that when memory is fresh. */
static inline int hg_interrupted_at(hg_watch *watch, int32_t turn, int units)
{
    return !(turn & 0x3FFF) && hg_interrupted(watch, (int64_t)units << 16);
}

/* memset in pieces between looks at the watch; memory never touched before costs a page fault every 4096 bytes. */
int hg_fill(void *memory, int byte, int64_t bytes, hg_watch *watch);

typedef struct {
    int32_t n;
    int64_t m;
    const int32_t *indptr, *indices;           /* successors: [n + 1], [m] */
    const int32_t *pred_indptr, *pred_indices; /* predecessors: [n + 1], [m] */
    const int32_t *order;                      /* a topological order [n], or NULL: 0..n-1 is one */
} hg_graph;

static inline int32_t hg_nth(const hg_graph *g, int32_t i)
{
    HT_ASSERT(i >= 0 && i < g->n);
    return g->order ? g->order[i] : i;
}

/* Whether start [n + 1] begins at 0, never falls, and ends at m: what rows of a graph and groups of nodes have. O(n); for
 * assertions. */
static inline int hg_rises(int32_t n, const int32_t *start, int64_t m)
{
    int rises = start[0] == 0 && start[n] == m;
    for (int32_t v = 0; v < n && rises; v++)
        rises = start[v] <= start[v + 1];
    return rises;
}

/* Asks for memory that will be read soon. */
#if defined(__GNUC__)
#define HG_PREFETCH(address) __builtin_prefetch(address)
#else
#define HG_PREFETCH(address) ((void)(address))
#endif
enum { HG_LEAD = 64 }; /* how many nodes, or edges, before their turn */

/* malloc of count * size bytes, never of 0 (so that NULL always means no memory). */
static inline void *hg_alloc(int64_t count, size_t size)
{
    if (count < 1)
        count = 1;
    if ((uint64_t)count > SIZE_MAX / size) /* unreached: counts are products of int32 numbers */
        return NULL;
    return malloc((size_t)count * size);
}
#define HG_NEW(type, count) ((type *)hg_alloc((count), sizeof(type)))

/* ---- build.c: edge arrays to CSR ---- */

/* Copies int32 (wide: int64) numbers within 0..limit-1, and writes -1 for others. Returns the position of the first of
 * the others, or count. The copies are checked, since another thread may write to `values` at the same time. */
int64_t hg_read_numbers(const void *values, int wide, int64_t count, int64_t limit, int32_t *out);

/* The same for device numbers, 0..254, of others 255. */
int64_t hg_read_devices(const void *values, int wide, int64_t count, uint8_t *out);

/* merged[slot[i]] += given[i] (slot NULL: i itself). First position of a weight that is negative, infinite or no
 * number, or count. */
int64_t hg_add_weights(const double *given, int64_t count, const int32_t *slot, double *merged);

/* *first: the first i with src[i] == dst[i], or m. */
int hg_first_self_loop(const int32_t *src, const int32_t *dst, int64_t m, int64_t *first, hg_watch *watch);

/* Edges in any order to rows that ascend, duplicates merged: indptr [n + 1], indices [m, the first *unique used].
 * slot [m]: position in indices of each edge as given. Stable counting sort by target, then by source: O(n + m). */
int hg_build(int32_t n, int64_t m, const int32_t *src, const int32_t *dst, int32_t *indptr, int32_t *indices,
             int32_t *slot, int64_t *unique, hg_watch *watch);

/* start[v + 1] counts of v -> start[v] where row v begins, start[n] their sum. */
int hg_counts_to_starts(int32_t n, int32_t *start, hg_watch *watch);

/* Rows of the reversed graph, ascending: O(n + m). */
int hg_transpose(int32_t n, int64_t m, const int32_t *indptr, const int32_t *indices, int32_t *pred_indptr,
                 int32_t *pred_indices, hg_watch *watch);

/* Rows as given: *bad_pointer = first position at which indptr does not rise from 0 to m, else untouched; then
 * *self_loop = first row that holds itself, else untouched, and *ascending = whether every row ascends strictly. */
int hg_check_rows(int32_t n, int64_t m, const int32_t *indptr, const int32_t *indices, int64_t *bad_pointer,
                  int32_t *self_loop, int *ascending, hg_watch *watch);

/* Source of each CSR entry: [m]. */
int hg_row_of_entry(int32_t n, const int32_t *indptr, int32_t *src, hg_watch *watch);

/* ---- order.c: topological orders ---- */

/* *ordered: whether 0..n-1 is a topological order, every successor of a greater number. */
int hg_is_ordered(int32_t n, const int32_t *indptr, const int32_t *indices, int *ordered, hg_watch *watch);

/* Kahn's algorithm, first in first out from the sources in ascending order: order [n]. *done: how many vertices were
 * ordered; fewer than n means a cycle, and then cycle [n] holds one, *cycle_length vertices each the successor of the
 * one before. Reads only the successor rows. */
int hg_kahn(int32_t n, const int32_t *indptr, const int32_t *indices, int32_t *order, int32_t *done, int32_t *cycle,
            int32_t *cycle_length, hg_watch *watch);

/* Preorder intervals of a depth-first forest that follows the first successor first: w is a descendant of v in it, and
 * so reachable from v, when entered[v] <= entered[w] <= left[v]. Roots in the order given (NULL: ascending). finished [n],
 * if not NULL: the nodes in postorder; of an acyclic graph, successors before predecessors. stack and cursor [n] are
 * scratch. */
int hg_forest(int32_t n, const int32_t *indptr, const int32_t *indices, const int32_t *order, int32_t *entered,
              int32_t *left, int32_t *finished, int32_t *stack, int32_t *cursor, hg_watch *watch);

/* ---- linear.c: components of equal level, valid by construction ---- */

/* Components of equal depth. subgraph_of [n], device_of [n, the first *count used]; *cut: edges between subgraphs. */
int hg_linear(const hg_graph *g, const uint8_t *device, int32_t *subgraph_of, int32_t *device_of, int32_t *count,
              int64_t *cut, hg_watch *watch);

/* Components of equal device, depth and height: more subgraphs, but branches on different devices can run side by side,
 * because they are apart from what forks and joins them. */
int hg_depth_height(const hg_graph *g, const uint8_t *device, int32_t *subgraph_of, int32_t *device_of, int32_t *count,
                    int64_t *cut, hg_watch *watch);

/* ---- auto.c: few subgraphs, then little cut ---- */

/* As hg_linear, without the cut. weight [m] in CSR order, or NULL: 1 each. thorough: 0 stops at the first result, before
 * the search for fewer subgraphs, which takes most of the time on small graphs. *maximal: 1 if no two adjacent subgraphs
 * of a device can be merged; 0 if that is unknown, since a search used up its steps. */
int hg_auto(const hg_graph *g, const uint8_t *device, const double *weight, int thorough, int32_t *subgraph_of,
            int32_t *device_of, int32_t *count, int *maximal, hg_watch *watch);

/* ---- bound.c: how few subgraphs there can be ---- */

/* *bound: no valid partition has fewer subgraphs. */
int hg_lower_bound(const hg_graph *g, const uint8_t *device, int32_t *bound, hg_watch *watch);

/* ---- documented.c: the documented loop ---- */

enum { HG_ROOT, HG_MERGE, HG_FAIL, HG_ROLLBACK, HG_CHOOSE };
typedef struct {
    int8_t *actions; /* HG_ROOT ... */
    int32_t *nodes;
    int64_t count;
} hg_trace;

/* Of the closure that the loop keeps, at most; a graph of 130,000 nodes always stays below. */
#define HG_DOCUMENTED_BYTES ((int64_t)2 << 30)

/* label [n]: subgraphs numbered in the order in which they are chosen, *count of them. trace: NULL, or every step
 * taken, to be freed by hg_trace_free. HG_OVER_BUDGET when the closure takes more than HG_DOCUMENTED_BYTES. */
int hg_documented(const hg_graph *g, const uint8_t *device, int32_t *label, int32_t *count, hg_trace *trace,
                  hg_watch *watch);
void hg_trace_free(hg_trace *trace);

/* ---- limit.c: no subgraph above a size, or below ---- */

/* One round of falling back: on the first device that has subgraphs (label [n], 0..count-1) of fewer nodes than
 * min_nodes [devices] tells which a later device may take, all of them go to the next that may. allowed [n * devices]:
 * which device may have which node. device [n] is changed; *moved: whether it was. */
int hg_fall_back(int32_t n, const int32_t *label, int32_t count, const int64_t *min_nodes, int devices,
                 const uint8_t *allowed, uint8_t *device, int *moved, hg_watch *watch);

/* Cuts up every subgraph of more than max_nodes nodes. label [n]: topological ids 0..*count-1, renumbered; device_of
 * [n]. across: pieces may also join neighboring subgraphs of their device. */
int hg_limit(const hg_graph *g, const uint8_t *device, const double *weight, int32_t max_nodes, int across,
             int32_t *label, int32_t *device_of, int32_t *count, hg_watch *watch);

/* ---- quotient.c: what all policies share once nodes have labels ---- */

/* Edges whose ends differ in label, and the sum of their weights (weight [m] in CSR order, or NULL: 1 each). */
int hg_cut(const hg_graph *g, const int32_t *label, const double *weight, int64_t *edges, double *total,
           hg_watch *watch);

/* Renumbers labels (any numbers 0..*count-1, none unused, quotient acyclic) by (longest path from a source of the
 * quotient, first node in topological order), and writes device_of [*count]. */
int hg_number(const hg_graph *g, const uint8_t *device, int32_t count, int32_t *label, int32_t *device_of,
              hg_watch *watch);

/* Nodes by label: those of label s at member[start[s]] to member[start[s + 1]], in the order given (NULL: ascending).
 * start [count + 1], member [n]. */
int hg_members(int32_t n, const int32_t *label, const int32_t *order, int32_t count, int32_t *start, int32_t *member,
               hg_watch *watch);

/* The start of Kahn's algorithm over the quotient: adds to waiting [count], zeros so far, the number of edges into each
 * subgraph, duplicates included; queue [count]: the *found of them that have none, ascending. */
int hg_sources(const hg_graph *g, const int32_t *label, int32_t count, int32_t *waiting, int32_t *queue, int32_t *found,
               hg_watch *watch);

/* The quotient as edge arrays src, dst [edges of hg_cut], duplicates included. */
int hg_quotient_edges(const hg_graph *g, const int32_t *label, int32_t *src, int32_t *dst, hg_watch *watch);

/* ---- closure.c: reachability ---- */

typedef struct {
    int32_t n, words;
    uint64_t **row; /* by rank: words first to end - 1; behind them every bit is `fill` */
    int32_t *first, *end;
    uint8_t *fill;
    int32_t *rank, *order; /* topological rank of a node, and the node of a rank */
    int64_t bytes;         /* all of it */
    int64_t at_least, at_most; /* the estimate: bytes that it will take */
    uint64_t **block;      /* memory of the rows */
    int64_t blocks, room_blocks;
    uint64_t *free; /* of the last block */
    int64_t room;
} hg_closure;

/* HG_OVER_BUDGET when it takes more than max_bytes: before anything but O(n) is allocated when at_least does, else as
 * soon as the rows do. Then nothing is kept but the estimate. */
int hg_closure_build(const hg_graph *g, hg_closure *closure, int64_t max_bytes, hg_watch *watch);
void hg_closure_free(hg_closure *closure);
int hg_closure_reaches(const hg_closure *closure, int32_t u, int32_t v);

/* Nodes that u reaches (u < 0: any) and that reach v (v < 0: any), ascending, to be freed: *nodes, *count. O(words of
 * u's row up to v + descendants of u before v), and sorting where ranks are not numbers; for u < 0 O(rank of v). */
int hg_closure_between(const hg_closure *closure, int32_t u, int32_t v, int32_t **nodes, int32_t *count,
                       hg_watch *watch);

/* ---- check.c: the verifier ---- */

enum {
    HG_VALID = 0,
    HG_BAD_ID,        /* a = node whose id is outside 0..k-1 */
    HG_UNUSED_ID,     /* a = the id */
    HG_MIXED_DEVICES, /* a, b = two nodes of one subgraph on different devices */
    HG_DISCONNECTED,  /* a, b = two nodes of one subgraph in different components */
    HG_NOT_CONVEX,    /* witness = nodes of a path that leaves a subgraph and returns */
    HG_CYCLIC,        /* witness = pairs u, v of nodes: edges that lead round a cycle of subgraphs */
    HG_UNORDERED,     /* a, b = an edge from a greater id to a smaller */
    HG_NOT_MAXIMAL,   /* a, b = an edge between two subgraphs that could be merged */
};
typedef struct {
    int rule;
    int32_t a, b;
    int32_t length; /* of witness */
} hg_verdict;

enum { HG_CHECK_ORDERED = 1, HG_CHECK_MAXIMAL = 2 };

/* witness [2 * n + 2] is written for HG_NOT_CONVEX and HG_CYCLIC. */
int hg_check(const hg_graph *g, const uint8_t *device, const int32_t *label, int flags, hg_verdict *verdict,
             int32_t *witness, hg_watch *watch);

/* ---- mergeable.c ---- */

/* verdict->rule = HG_NOT_MAXIMAL and an edge a, b when two adjacent subgraphs of one device (labels 0..count-1 of a
 * valid partition) can be merged without a cycle; otherwise verdict is untouched. */
int hg_first_mergeable(const hg_graph *g, const uint8_t *device, const int32_t *label, int32_t count,
                       hg_verdict *verdict, hg_watch *watch);

#endif
