/* Topological order of the vertices.
 *
 * Source: Kahn, 1962. If every vertex comes after the vertices it reads, the file's order is kept. Otherwise the next
 * vertex is always the first in the file among those that are ready (a binary heap), so sorted parts keep their order.
 * Cost: O(V + E), and O(E + V log V) if the order changes. If there are cycles, the vertices of one are reported. */
#include "builder.h"

typedef struct {
    int32_t *unread;   /* per vertex: entries of its inputs and captures whose producer has not been placed */
    int64_t *first;    /* [V + 1] where the readers of a vertex start */
    int32_t *readers;  /* vertices, once per entry */
    int32_t *heap, heap_size;
    int32_t *order, placed;
} sort_state;

static void entries(const ht_index *index, int32_t node, const int32_t *which[2], int32_t count[2])
{
    count[0] = index->input_indptr.data[node + 1] - index->input_indptr.data[node];
    count[1] = index->capture_indptr.data[node + 1] - index->capture_indptr.data[node];
    /* If all lists in the file are empty, the array has no memory to point into. */
    which[0] = count[0] ? index->inputs.data + index->input_indptr.data[node] : NULL;
    which[1] = count[1] ? index->captures.data + index->capture_indptr.data[node] : NULL;
}

static void heap_push(sort_state *state, int32_t node)
{
    int32_t at = state->heap_size++;
    for (; at > 0 && state->heap[(at - 1) / 2] > node; at = (at - 1) / 2)
        state->heap[at] = state->heap[(at - 1) / 2];
    state->heap[at] = node;
}

static int32_t heap_pop(sort_state *state)
{
    int32_t top = state->heap[0], last = state->heap[--state->heap_size], at = 0;
    for (;;) {
        int64_t child = 2 * (int64_t)at + 1;
        if (child >= state->heap_size)
            break;
        if (child + 1 < state->heap_size && state->heap[child + 1] < state->heap[child])
            child++;
        if (state->heap[child] >= last)
            break;
        state->heap[at] = state->heap[child];
        at = (int32_t)child;
    }
    state->heap[at] = last;
    return top;
}

/* Reports a cycle among the unplaced vertices. Each of them reads another unplaced one, so following these edges must
 * reach a cycle. */
static bool fail_on_cycle(ht_builder *builder, sort_state *state)
{
    const ht_index *index = builder->index;
    int32_t n = (int32_t)index->node_op.count, node = 0;
    memset(state->heap, 0, (size_t)n * sizeof(int32_t)); /* no longer needed: now marks visited vertices */
    while (state->unread[node] == 0)
        node++;
    for (bool reporting = false;;) {
        if (state->heap[node] == 1 + reporting) {
            if (reporting)
                break;
            reporting = true;
            ht_fail(builder->error, -1, "nodes depend on each other in a cycle");
        }
        state->heap[node] = 1 + reporting;
        if (reporting)
            ht_in_place(builder->error, HT_PLACE_NODE, index->node_start.data[node] + index->node_header.data[node],
                        index->node_end.data[node], -1);
        const int32_t *values[2];
        int32_t count[2], next = -1;
        entries(index, node, values, count);
        for (int list = 0; list < 2; list++)
            for (int32_t i = 0; i < count[list] && next < 0; i++) {
                int32_t producer = values[list][i] < 0 ? -1 : index->value_producer.data[values[list][i]];
                if (producer >= 0 && state->unread[producer] > 0)
                    next = producer;
            }
        node = next;
    }
    return false;
}

/* Reorders the rows of a CSR list. */
static bool permute_rows(ht_i32s *indptr, ht_i32s *values, const int32_t *order)
{
    int64_t n = indptr->count - 1, at = 0;
    ht_i32s new_indptr = {0}, new_values = {0};
    if (!ht_resize_i32(&new_indptr, n + 1) || !ht_resize_i32(&new_values, values->count > 0 ? values->count : 1)) {
        free(new_indptr.data);
        free(new_values.data);
        return false;
    }
    for (int64_t i = 0; i < n; i++) {
        int32_t begin = indptr->data[order[i]], length = indptr->data[order[i] + 1] - begin;
        new_indptr.data[i] = (int32_t)at;
        if (length > 0)
            memcpy(new_values.data + at, values->data + begin, (size_t)length * sizeof(int32_t));
        at += length;
    }
    new_indptr.data[n] = (int32_t)at;
    new_values.count = at;
    free(indptr->data);
    free(values->data);
    *indptr = new_indptr;
    *values = new_values;
    return true;
}

#define PERMUTE(vector, type)                                                                       \
    do {                                                                                            \
        type *sorted = malloc((size_t)n * sizeof(type));                                            \
        if (sorted == NULL)                                                                         \
            return false;                                                                           \
        for (int32_t i = 0; i < n; i++)                                                             \
            sorted[i] = index->vector.data[order[i]];                                               \
        free(index->vector.data);                                                                   \
        index->vector.data = sorted;                                                                \
        index->vector.capacity = n;                                                                 \
    } while (0)

static bool permute(ht_index *index, const int32_t *order, int32_t *place)
{
    int32_t n = (int32_t)index->node_op.count;
    PERMUTE(node_start, int64_t);
    PERMUTE(node_end, int64_t);
    PERMUTE(node_header, uint8_t);
    PERMUTE(node_name, int64_t);
    PERMUTE(node_op, int32_t);
    for (int32_t i = 0; i < n; i++)
        place[order[i]] = i;
    for (int64_t i = 0; i < index->affinity_node.count; i++)
        index->affinity_node.data[i] = place[index->affinity_node.data[i]];
    return permute_rows(&index->input_indptr, &index->inputs, order) &&
           permute_rows(&index->output_indptr, &index->outputs, order) &&
           permute_rows(&index->capture_indptr, &index->captures, order);
}

static void set_producers(ht_index *index)
{
    for (int64_t value = 0; value < index->value_producer.count; value++)
        index->value_producer.data[value] = -1;
    for (int32_t node = 0; node < index->node_op.count; node++)
        for (int32_t i = index->output_indptr.data[node]; i < index->output_indptr.data[node + 1]; i++)
            if (index->outputs.data[i] >= 0)
                index->value_producer.data[index->outputs.data[i]] = node;
}

static bool is_ordered(const ht_index *index)
{
    for (int32_t node = 0; node < index->node_op.count; node++) {
        const int32_t *values[2];
        int32_t count[2];
        entries(index, node, values, count);
        for (int list = 0; list < 2; list++)
            for (int32_t i = 0; i < count[list]; i++)
                if (values[list][i] >= 0 && index->value_producer.data[values[list][i]] >= node)
                    return false;
    }
    return true;
}

static void kahn(const ht_index *index, sort_state *state)
{
    int32_t n = (int32_t)index->node_op.count;
    for (int pass = 0; pass < 2; pass++) { /* count the readers, then list them */
        for (int32_t node = 0; node < n; node++) {
            const int32_t *values[2];
            int32_t count[2];
            entries(index, node, values, count);
            for (int list = 0; list < 2; list++)
                for (int32_t i = 0; i < count[list]; i++) {
                    int32_t producer = values[list][i] < 0 ? -1 : index->value_producer.data[values[list][i]];
                    if (producer < 0)
                        continue;
                    if (pass == 0) {
                        state->unread[node]++;
                        state->first[producer + 1]++;
                    } else {
                        state->readers[state->first[producer]++] = node;
                    }
                }
        }
        if (pass == 0)
            for (int32_t node = 0; node < n; node++)
                state->first[node + 1] += state->first[node];
    }
    /* The second pass moved each start to the start of the next row. */
    memmove(state->first + 1, state->first, (size_t)n * sizeof(int64_t));
    state->first[0] = 0;

    for (int32_t node = 0; node < n; node++)
        if (state->unread[node] == 0)
            heap_push(state, node);
    while (state->heap_size > 0) {
        int32_t node = heap_pop(state);
        state->order[state->placed++] = node;
        for (int64_t i = state->first[node]; i < state->first[node + 1]; i++)
            if (--state->unread[state->readers[i]] == 0)
                heap_push(state, state->readers[i]);
    }
}

bool ht_order(ht_builder *builder)
{
    ht_index *index = builder->index;
    if (!ht_resize_i32(&index->value_producer, index->value_name.count))
        return ht_fail_memory(builder->error);
    set_producers(index);
    index->in_order = !builder->constant_after_use;
    if (is_ordered(index))
        return true;

    index->in_order = false;
    size_t n = (size_t)index->node_op.count;
    sort_state state = {
        .unread = calloc(n, sizeof(int32_t)),
        .first = calloc(n + 1, sizeof(int64_t)),
        .readers = malloc(((size_t)index->inputs.count + (size_t)index->captures.count) * sizeof(int32_t)),
        .heap = malloc(n * sizeof(int32_t)),
        .order = malloc(n * sizeof(int32_t)),
    };
    bool done;
    if (state.unread == NULL || state.first == NULL || state.readers == NULL || state.heap == NULL ||
        state.order == NULL) {
        done = ht_fail_memory(builder->error);
    } else {
        kahn(index, &state);
        if ((size_t)state.placed < n) {
            done = fail_on_cycle(builder, &state);
        } else {
            done = permute(index, state.order, state.heap) || ht_fail_memory(builder->error);
            if (done)
                set_producers(index);
        }
    }
    free(state.unread);
    free(state.first);
    free(state.readers);
    free(state.heap);
    free(state.order);
    return done;
}
