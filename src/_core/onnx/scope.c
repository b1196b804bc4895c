/* Captures of nested graphs (If, Loop, Scan, ...): names that they read from the main graph.
 *
 * A graph binds its inputs, initializers and node outputs. A name is captured from the main graph if a nested graph
 * reads it and neither that graph nor any enclosing nested graph binds it. Graphs wait on an explicit stack: entering
 * one binds its names and reads its nodes, then its nested graphs are walked while the bindings hold, then the bindings
 * are undone. Each field is visited a bounded number of times, so the cost is linear in the bytes. The captures of a
 * node are listed once each, in the order of the walk. */
#include "builder.h"

#include <inttypes.h>

enum { GRAPH_NODE = 1, GRAPH_INITIALIZER = 5, GRAPH_INPUT = 11, GRAPH_OUTPUT = 12, GRAPH_SPARSE = 15 };
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_ATTRIBUTE = 5 };
enum { VALUE_INFO_NAME = 1 };

void ht_scopes_free(ht_scopes *scopes)
{
    ht_table_free(&scopes->table);
    free(scopes->names.data);
    free(scopes->bound.data);
    free(scopes->last_graph.data);
    free(scopes->last_kind.data);
    free(scopes->bindings.data);
    free(scopes->pending.data);
    free(scopes->captured_by.data);
}

static bool check_name(ht_builder *builder, const ht_field *field)
{
    if (!ht_expect(builder, field, HT_LEN))
        return false;
    return field->end - field->begin <= HT_MAX_NAME ||
           ht_fail(builder->error, HT_OFFSET(builder, field->begin), "a name has more than %d bytes", HT_MAX_NAME);
}

/* Binds a name in the graph being entered. As in the main graph, an initializer may share the name of an input. */
static bool bind(ht_builder *builder, const ht_field *name, uint8_t kind)
{
    ht_scopes *scopes = &builder->scopes;
    bool fresh;
    if (!check_name(builder, name))
        return false;
    if (name->begin == name->end)
        return true;
    int64_t offset = HT_OFFSET(builder, name->begin), length = name->end - name->begin;
    int32_t symbol = ht_intern(&scopes->table, &scopes->names, ht_hash(builder->key, name->begin, length),
                               builder->base, offset, length, &fresh);
    if (symbol < 0)
        return ht_fail_memory(builder->error);
    if (fresh) {
        if (!ht_is_utf8(name->begin, length))
            return ht_fail(builder->error, offset, "a name in a nested graph is not UTF-8");
        if (!ht_push_i32(&scopes->bound, 0) || !ht_push_i32(&scopes->last_graph, 0) ||
            !ht_push_u8(&scopes->last_kind, 0))
            return ht_fail_memory(builder->error);
    }
    if (scopes->last_graph.data[symbol] == scopes->graphs) {
        uint8_t both = scopes->last_kind.data[symbol] | kind;
        if (scopes->last_kind.data[symbol] == kind || both != (HT_IS_INPUT | HT_IS_INITIALIZER))
            return ht_fail_about(builder->error, offset, offset, length, "a name is defined twice in a nested graph");
    }
    scopes->last_graph.data[symbol] = scopes->graphs;
    scopes->last_kind.data[symbol] = kind;
    scopes->bound.data[symbol]++;
    return ht_push_i32(&scopes->bindings, symbol) || ht_fail_memory(builder->error);
}

/* A read of `name` inside a nested graph of vertex `node`. */
static bool read_name(ht_builder *builder, const ht_field *name, int32_t node)
{
    ht_scopes *scopes = &builder->scopes;
    ht_index *index = builder->index;
    int32_t value;
    bool fresh;
    if (!check_name(builder, name))
        return false;
    int64_t length = name->end - name->begin;
    if (length == 0)
        return true;
    int32_t symbol = ht_table_find(&scopes->table, scopes->names.data, builder->base,
                                   ht_hash(builder->key, name->begin, length), name->begin, length);
    if (symbol >= 0 && scopes->bound.data[symbol] > 0)
        return true;
    if (!ht_value(builder, name->begin, name->end, &value, &fresh))
        return false;
    int64_t known = scopes->captured_by.count;
    if (value >= known) {
        if (!ht_resize_i32(&scopes->captured_by, index->value_name.count))
            return ht_fail_memory(builder->error);
        memset(scopes->captured_by.data + known, 0, (size_t)(index->value_name.count - known) * sizeof(int32_t));
    }
    if (scopes->captured_by.data[value] == node + 1)
        return true;
    scopes->captured_by.data[value] = node + 1;
    return ht_push_i32(&index->captures, value) || ht_fail_memory(builder->error);
}

/* Binds each field `number` of a message; with `singular` only the last one, which overrides the others. */
static bool bind_names(ht_builder *builder, const ht_field *message, uint32_t number, uint8_t kind, bool singular)
{
    ht_field field, last = {0};
    for (ht_cursor cursor = {message->begin, message->end}; cursor.at < cursor.end;) {
        if (!ht_next_field(builder, &cursor, &field))
            return false;
        if (field.number != number)
            continue;
        if (!ht_expect(builder, &field, HT_LEN) || (!singular && !bind(builder, &field, kind)))
            return false;
        last = field;
    }
    return !singular || last.begin == NULL || bind(builder, &last, kind);
}

/* A SparseTensorProto binds the name of its values. */
static bool bind_sparse(ht_builder *builder, const ht_field *message)
{
    enum { SPARSE_VALUES = 1, TENSOR_NAME = 8 };
    ht_field field, values = {0};
    for (ht_cursor cursor = {message->begin, message->end}; cursor.at < cursor.end;) {
        if (!ht_next_field(builder, &cursor, &field))
            return false;
        if (field.number != SPARSE_VALUES)
            continue;
        if (!ht_expect(builder, &field, HT_LEN))
            return false;
        if (values.begin != NULL)
            return ht_fail(builder->error, HT_OFFSET(builder, field.start),
                           "field 1 of a sparse tensor is given twice");
        values = field;
    }
    return values.begin == NULL || bind_names(builder, &values, TENSOR_NAME, HT_IS_INITIALIZER, true);
}

static bool bind_graph(ht_builder *builder, ht_cursor cursor)
{
    enum { TENSOR_NAME = 8 };
    ht_field field;
    while (cursor.at < cursor.end) {
        if (!ht_next_field(builder, &cursor, &field))
            return false;
        bool known = field.number == GRAPH_NODE || field.number == GRAPH_INPUT || field.number == GRAPH_INITIALIZER ||
                     field.number == GRAPH_SPARSE || field.number == GRAPH_OUTPUT;
        if (known && !ht_expect(builder, &field, HT_LEN))
            return false;
        if ((field.number == GRAPH_NODE && !bind_names(builder, &field, NODE_OUTPUT, HT_IS_NODE_OUTPUT, false)) ||
            (field.number == GRAPH_INPUT && !bind_names(builder, &field, VALUE_INFO_NAME, HT_IS_INPUT, true)) ||
            (field.number == GRAPH_INITIALIZER &&
             !bind_names(builder, &field, TENSOR_NAME, HT_IS_INITIALIZER, true)) ||
            (field.number == GRAPH_SPARSE && !bind_sparse(builder, &field)))
            return false;
    }
    return true;
}

static bool read_graph(ht_builder *builder, ht_cursor cursor, int32_t node)
{
    ht_field field, inner;
    ht_attribute attribute;
    while (cursor.at < cursor.end) {
        (void)ht_next(&cursor, &field); /* cannot fail: bind_graph has read it */
        if (field.number != GRAPH_NODE && field.number != GRAPH_OUTPUT)
            continue;
        ht_field output = {0};
        for (ht_cursor message = {field.begin, field.end}; message.at < message.end;) {
            if (!ht_next_field(builder, &message, &inner))
                return false;
            if (field.number == GRAPH_OUTPUT && inner.number == VALUE_INFO_NAME)
                output = inner; /* the last one overrides the others */
            if (field.number == GRAPH_NODE && inner.number == NODE_INPUT && !read_name(builder, &inner, node))
                return false;
            if (field.number == GRAPH_NODE && inner.number == NODE_ATTRIBUTE &&
                !ht_read_attribute(builder, &inner, &attribute))
                return false;
        }
        if (output.start != NULL && !read_name(builder, &output, node))
            return false;
    }
    return true;
}

/* Reverses the stack entries above `bottom`, so that they are popped in the order in which they were found. */
static void reverse_pending(ht_i64s *pending, int64_t bottom)
{
    for (int64_t low = bottom, high = pending->count - 3; low < high; low += 3, high -= 3)
        for (int i = 0; i < 3; i++) {
            int64_t swapped = pending->data[low + i];
            pending->data[low + i] = pending->data[high + i];
            pending->data[high + i] = swapped;
        }
}

bool ht_capture(ht_builder *builder, int32_t node)
{
    ht_scopes *scopes = &builder->scopes;
    int depth = 0;
    reverse_pending(&scopes->pending, 0);
    while (scopes->pending.count > 0) {
        int64_t *top = scopes->pending.data + scopes->pending.count - 3;
        if (top[2] >= 0) { /* all its nested graphs are done: leave the graph */
            while (scopes->bindings.count > top[2])
                scopes->bound.data[scopes->bindings.data[--scopes->bindings.count]]--;
            scopes->pending.count -= 3;
            depth--;
            continue;
        }
        if (++depth > HT_MAX_GRAPH_DEPTH)
            return ht_fail(builder->error, top[0], "graphs are nested more than %d deep", HT_MAX_GRAPH_DEPTH);
        if (++scopes->graphs == INT32_MAX) /* unreached: a file of 2^31 graphs */
            return ht_fail(builder->error, top[0], "too many nested graphs");
        top[2] = scopes->bindings.count;
        ht_cursor body = {builder->base + top[0], builder->base + top[1]};
        int64_t above = scopes->pending.count;
        if (!bind_graph(builder, body) || !read_graph(builder, body, node))
            return false;
        reverse_pending(&scopes->pending, above);
    }
    return true;
}
