/* Growing a candidate of the documented loop, depth first, with a rejected list and rollback: see documented.c. */
#include "documented.h"

void hg_note(hg_loop *s, int action, int32_t node)
{
    if (!s->tracing)
        return;
    if (s->num_actions == s->room_actions) {
        const int64_t room = s->room_actions ? 2 * s->room_actions : 256;
        int8_t *actions = (int8_t *)realloc(s->actions, (size_t)room);
        if (actions)
            s->actions = actions;
        int32_t *nodes = (int32_t *)realloc(s->action_nodes, (size_t)room * sizeof *nodes);
        if (nodes)
            s->action_nodes = nodes;
        if (!actions || !nodes) {
            s->failed = 1;
            return;
        }
        s->room_actions = room;
    }
    s->actions[s->num_actions] = (int8_t)action;
    s->action_nodes[s->num_actions++] = node;
}

/* side |= words first .. end - 1 of a row (bits NULL: ones). A rejected node that is now in both sides is the witness. */
static void unite_words(hg_loop *s, hg_path_side *side, const uint64_t *other, const uint64_t *bits, int32_t first,
                        int32_t end)
{
    for (int32_t w = first; w < end; w++) {
        const uint64_t old = side->set[w], added = (bits ? bits[w - first] : UINT64_MAX) & ~old;
        if (!added)
            continue;
        side->log_word[side->logged] = w;
        side->log_old[side->logged++] = old;
        side->set[w] = old | added;
        const uint64_t found = added & other[w] & s->rejected[w];
        if (found)
            s->witness = 64 * w + __builtin_ctzll(found);
    }
}

/* Unites a side with the closure row of the member of a place; words known to be full already are passed over. A side
 * that holds the member holds all of its row. */
static void unite_row(hg_loop *s, hg_path_side *side, const hg_path_side *other, int32_t place, int32_t r, const hg_row *row,
                      int down)
{
    side->log_start[place] = side->logged;
    side->log_full[place] = side->full;
    if (hg_bit(side->set, r))
        return;
    int32_t first = row->first, end = row->end;
    if (down) {
        if (row->ones < side->full) {
            unite_words(s, side, other->set, NULL, row->ones, side->full);
            side->full = row->ones;
        }
        if (row->last)
            unite_words(s, side, other->set, &row->last, s->words - 1, s->words);
        end = end < side->full ? end : side->full;
    } else {
        if (side->full < row->ones_end) {
            unite_words(s, side, other->set, NULL, side->full, row->ones_end);
            side->full = row->ones_end;
        }
        first = first > side->full ? first : side->full;
    }
    if (first < end)
        unite_words(s, side, other->set, row->bits + (first - row->first), first, end);
}

static void take_back(hg_path_side *side, int32_t place)
{
    while (side->logged > side->log_start[place]) {
        side->logged--;
        side->set[side->log_word[side->logged]] = side->log_old[side->logged];
    }
    side->full = side->log_full[place];
}

/* After a rollback: is the witness still one, or is there another? */
static void find_witness(hg_loop *s)
{
    const uint64_t *below = s->below.set, *above = s->above.set;
    if (hg_bit(below, s->witness) && hg_bit(above, s->witness))
        return;
    for (int32_t w = s->low; w <= s->high; w++) {
        const uint64_t found = below[w] & above[w] & s->rejected[w];
        if (found) {
            s->witness = 64 * w + __builtin_ctzll(found);
            return;
        }
    }
    s->witness = -1;
}

static void push(hg_loop *s, int32_t v)
{
    const int32_t place = s->size++, r = s->rank[v];
    s->stack[place] = v;
    s->child[place] = s->g->indptr[v];
    s->parent[place] = s->g->pred_indptr[v];
    s->open[s->num_open++] = place;
    unite_row(s, &s->below, &s->above, place, r, &s->closure.below[r], 1);
    unite_row(s, &s->above, &s->below, place, r, &s->closure.above[r], 0);
    s->touched[s->num_touched++] = v;
    s->state[v] = MERGED;
}

static void reject(hg_loop *s, int32_t v)
{
    const int32_t r = s->rank[v], w = r / 64;
    if (s->state[v] == UNSEEN)
        s->touched[s->num_touched++] = v;
    s->state[v] = REJECTED;
    hg_set_bit(s->rejected, r);
    s->low = w < s->low ? w : s->low;
    s->high = w > s->high ? w : s->high;
    if (hg_bit(s->below.set, r) && hg_bit(s->above.set, r))
        s->witness = r;
}

/* The node merged last joins the rejected list. */
static void roll_back(hg_loop *s)
{
    const int32_t place = --s->size, v = s->stack[place];
    if (s->num_open && s->open[s->num_open - 1] == place)
        s->num_open--;
    take_back(&s->below, place);
    take_back(&s->above, place);
    reject(s, v);
    hg_note(s, HG_ROLLBACK, v);
}

/* Merges v, and rejects it again at once where that violates the condition. */
static void merge(hg_loop *s, int32_t v)
{
    hg_note(s, HG_MERGE, v);
    push(s, v);
    if (s->witness < 0)
        return;
    roll_back(s);
    s->state[v] = AT_ONCE;
    find_witness(s);
}

/* One step: from the cursor on, the neighbors of a member in one direction up to the first that can be merged or calls
 * for a rollback. Returns whether there was one. */
static int step(hg_loop *s, const int32_t *row, int32_t *cursor, int32_t end)
{
    for (int32_t j = *cursor; j < end; j++) {
        const int32_t v = row[j];
        if (s->state[v] != UNSEEN)
            continue;
        *cursor = j + 1;
        if (s->mergeable[v])
            merge(s, v);
        else {
            reject(s, v);
            hg_note(s, HG_FAIL, v);
            if (s->witness < 0)
                continue;
        }
        while (s->witness >= 0) {
            roll_back(s);
            find_witness(s);
        }
        return 1;
    }
    *cursor = end;
    return 0;
}

/* The next neighbor is always one of the most recently merged member that has any left. States are never reset, so a
 * member without neighbors left stays without. */
int hg_grow(hg_loop *s, int32_t root, hg_watch *watch)
{
    const hg_graph *g = s->g;
    int64_t work = 0;
    s->size = s->num_touched = s->num_open = 0;
    s->low = s->words;
    s->high = s->witness = -1;
    hg_note(s, HG_ROOT, root);
    push(s, root);
    while (s->num_open) {
        const int32_t place = s->open[s->num_open - 1], v = s->stack[place];
        const int32_t before = s->num_touched, child = s->child[place], parent = s->parent[place];
        if (!step(s, g->indices, &s->child[place], g->indptr[v + 1]) &&
            !step(s, g->pred_indices, &s->parent[place], g->pred_indptr[v + 1]))
            s->num_open--;
        work += 4 + 4 * (s->num_touched - before) + (s->child[place] - child) + (s->parent[place] - parent) +
                s->words / 4;
        if (work > 1 << 14) {
            if (hg_interrupted(watch, work))
                return HG_INTERRUPTED;
            work = 0;
        }
    }
    take_back(&s->below, 0);
    take_back(&s->above, 0);
    for (int32_t w = s->low; w <= s->high; w++)
        s->rejected[w] = 0;
    return hg_interrupted(watch, work + s->num_touched) ? HG_INTERRUPTED : HG_OK;
}
