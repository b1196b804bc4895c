/* Node keys: the names by which users refer to nodes.
 *
 * A node's key is its name if that is unique, else its first output, which is always unique. The two kinds can collide:
 * a node named "y" and a nameless node with output "y". Then the named node also uses its output, and so on until
 * nothing collides. A worklist does this; each node switches to its output at most once. Expected O(names). */
#include "index.h"

#include <inttypes.h>

typedef struct {
    const uint8_t *base;
    const ht_index *index;
    const uint64_t *hash_key;
    int64_t vertices, count;
    ht_i64s names;    /* distinct names */
    ht_i32s owner;    /* name -> the entry with this key, -1: none */
    ht_table table;
    ht_i32s unnamed;  /* worklist: entries whose key is their output */
} key_state;

static ht_span name_of(const key_state *state, int64_t entry)
{
    return entry < state->vertices ? state->index->node_name.data[entry]
                                   : state->index->constant_node_name.data[entry - state->vertices];
}

/* The first named output, 0 if there is none. */
static ht_span output_of(const key_state *state, int64_t entry)
{
    const ht_index *index = state->index;
    if (entry >= state->vertices)
        return index->value_name.data[index->constant_value.data[entry - state->vertices]];
    for (int32_t i = index->output_indptr.data[entry]; i < index->output_indptr.data[entry + 1]; i++)
        if (index->outputs.data[i] >= 0)
            return index->value_name.data[index->outputs.data[i]];
    return 0;
}

static bool is_node(const key_state *state, int64_t entry)
{
    return entry < state->vertices ||
           state->index->constant_source.data[entry - state->vertices] == HT_SOURCE_NODE;
}

/* Finds the owner of each unique name, and the entries without one. */
static bool collect_names(key_state *state)
{
    bool fresh;
    for (int64_t entry = 0; entry < state->count; entry++) {
        ht_span name = name_of(state, entry);
        if (!is_node(state, entry))
            continue;
        if (name == 0) {
            if (!ht_push_i32(&state->unnamed, (int32_t)entry))
                return false;
            continue;
        }
        int64_t offset = ht_span_offset(name), length = ht_span_length(name);
        int32_t id = ht_intern(&state->table, &state->names, ht_hash(state->hash_key, state->base + offset, length),
                               state->base, offset, length, &fresh);
        if (id < 0)
            return false;
        if (fresh) {
            if (!ht_push_i32(&state->owner, (int32_t)entry))
                return false;
            continue;
        }
        if (state->owner.data[id] >= 0 && !ht_push_i32(&state->unnamed, state->owner.data[id]))
            return false;
        state->owner.data[id] = -1;
        if (!ht_push_i32(&state->unnamed, (int32_t)entry))
            return false;
    }
    return true;
}

/* Gives every entry of the worklist its output as key. An entry that had that name as key joins the worklist. */
static bool settle(key_state *state, ht_keys *keys, ht_error *error)
{
    for (int64_t i = 0; i < state->unnamed.count; i++) {
        int32_t entry = state->unnamed.data[i];
        ht_span output = output_of(state, entry);
        if (output == 0) {
            ht_span name = name_of(state, entry);
            return ht_fail_about(error, -1, ht_span_offset(name), ht_span_length(name),
                                 "a node has neither a unique name nor an output");
        }
        keys->key.data[entry] = output;
        const uint8_t *string = state->base + ht_span_offset(output);
        int32_t id = ht_table_find(&state->table, state->names.data, state->base,
                                   ht_hash(state->hash_key, string, ht_span_length(output)), string,
                                   ht_span_length(output));
        if (id >= 0 && state->owner.data[id] >= 0) { /* another entry: those in the worklist own nothing */
            if (!ht_push_i32(&state->unnamed, state->owner.data[id]))
                return ht_fail_memory(error);
            state->owner.data[id] = -1;
        }
    }
    return true;
}

bool ht_keys_build(const uint8_t *base, const ht_index *index, const uint64_t hash_key[2], ht_keys *keys,
                   ht_error *error)
{
    *error = (ht_error){.offset = -1};
    key_state state = {.base = base, .index = index, .hash_key = hash_key, .vertices = index->node_op.count};
    state.count = state.vertices + index->constant_value.count;
    /* unreached: a file of 2^31 nodes */
    bool done = (state.count < INT32_MAX && ht_resize_i64(&keys->key, state.count) && collect_names(&state)) ||
                ht_fail_memory(error);
    if (done) {
        for (int64_t entry = 0; entry < state.count; entry++)
            keys->key.data[entry] = name_of(&state, entry);
        done = settle(&state, keys, error);
    }
    for (int64_t entry = 0; done && entry < state.count; entry++)
        if (is_node(&state, entry)) {
            const uint8_t *key = base + ht_span_offset(keys->key.data[entry]);
            done = ht_table_add(&keys->table, ht_hash(hash_key, key, ht_span_length(keys->key.data[entry])),
                                (int32_t)entry) ||
                   ht_fail_memory(error);
        }
    free(state.names.data);
    free(state.owner.data);
    free(state.unnamed.data);
    ht_table_free(&state.table);
    return done;
}

void ht_keys_free(ht_keys *keys)
{
    free(keys->key.data);
    ht_table_free(&keys->table);
    *keys = (ht_keys){0};
}
