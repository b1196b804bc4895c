/* The state of the documented loop (documented.c), and how a candidate grows (documented_grow.c). */
#ifndef HETERO_PARTITION_DOCUMENTED_H
#define HETERO_PARTITION_DOCUMENTED_H

#include "contracted.h"

/* What grew from one root, as long as it holds. */
typedef struct {
    int32_t size;          /* number of members, which are firm, and so explored */
    int32_t firm;          /* explored, without those rolled back in the step that merged them */
    int32_t explored;
    int32_t first, words;  /* of the bit sets; words = 0: kept as a list of nodes, members first, firm ones next */
    union {
        int32_t *nodes;
        uint64_t *bits; /* over ranks: members, firm, explored, `words` each */
    } kept; /* NULL: only the size is known, of this round */
} hg_candidate;

/* The union of one direction's closure rows of all members, with what merging changed. */
typedef struct {
    uint64_t *set; /* over ranks */
    int32_t full;  /* below: words from here to the last but one hold only ones; above: words before here */
    int32_t *log_word, *log_start, *log_full; /* changed words; by place: where its part starts, and full before it */
    uint64_t *log_old;
    int32_t logged;
} hg_path_side;

typedef struct {
    const hg_graph *g;
    const uint8_t *device;
    int32_t n, words;
    int32_t *rank, *order; /* smallest-first topological order */
    int32_t *label;        /* of a node: the subgraph that was chosen with it, or -1 */
    uint8_t *mergeable;    /* of a node: of the device whose turn it is, and free */
    uint8_t *is_free;      /* of a node: not chosen */
    hg_contracted closure;

    /* the candidate that grows */
    int32_t *stack, size;    /* in order of merging */
    int32_t *child, *parent; /* by place: next edge to look at */
    int32_t *open, num_open; /* places that may have a neighbor left, ascending */
    uint8_t *state;          /* of a node: UNSEEN, MERGED, REJECTED or AT_ONCE */
    int32_t *touched, num_touched;
    uint64_t *rejected;      /* over ranks, words low .. high */
    int32_t low, high;
    int32_t witness;         /* rank of a rejected node on a path, or -1 */
    hg_path_side below, above;

    hg_candidate *cache; /* by root */
    int64_t kept_bytes, most_kept_bytes;

    int8_t *actions; /* the trace: growable, or NULL */
    int32_t *action_nodes;
    int64_t num_actions, room_actions;
    int tracing, failed;
} hg_loop;

enum { UNSEEN = 0, MERGED, REJECTED, AT_ONCE }; /* AT_ONCE: rejected in the step that merged it */

/* Grows the candidate of one root on the stack; touched: all nodes explored, whose states the caller sets back. */
int hg_grow(hg_loop *s, int32_t root, hg_watch *watch);

/* A step of the trace, if there is one. */
void hg_note(hg_loop *s, int action, int32_t node);

#endif
