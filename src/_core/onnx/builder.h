/* Interface between the parts of the index builder: index.c (model and graph), node.c, scope.c (nested graphs),
 * scout.c, order.c. Every function that returns bool returns false on failure and fills builder->error. */
#ifndef HETERO_ONNX_BUILDER_H
#define HETERO_ONNX_BUILDER_H

#include "index.h"

/* Deeper nesting is rejected: protobuf itself parses at most 100 nested messages, three per graph. */
#define HT_MAX_GRAPH_DEPTH 31

/* Larger counts of opset imports and functions are rejected, because each entry costs many times its size in the
 * file. */
#define HT_MAX_OPSETS 4096
#define HT_MAX_FUNCTIONS 65536

/* Names bound by nested graphs, and the state of the walk over them. */
typedef struct {
    ht_table table; /* names seen in nested graphs -> symbols */
    ht_i64s names;
    ht_i32s bound;      /* symbol -> number of graphs on the current path that define it */
    ht_i32s last_graph; /* symbol -> number of the graph that last defined it */
    ht_u8s last_kind;   /* symbol -> kind of that definition */
    ht_i32s bindings;   /* symbols in the order they were bound, for undoing */
    ht_i64s pending;    /* stack of (begin, end, number of earlier bindings; -1: not entered yet) */
    int32_t graphs;     /* nested graphs entered so far */
    ht_i32s captured_by; /* value -> 1 + the last vertex that captured it */
} ht_scopes;

/* Hashes of names that the scout has seen, by offset. */
enum { HT_HASHED = 1024 };
typedef struct {
    ht_span span; /* 0: unused entry */
    uint64_t hash;
} ht_hashed;

typedef struct {
    const uint8_t *base;
    uint64_t key[2];
    ht_index *index;
    ht_error *error;
    ht_i64s texts; /* op types and domains */
    ht_table text_table;
    ht_i32s op_texts; /* pairs: op type, domain */
    ht_i64s op_spans;
    ht_table op_table;
    ht_u8s op_is_constant;
    ht_i64s info_name;
    int64_t nodes, initializers, sparse_initializers, infos[3], opsets, functions; /* seen so far */
    bool constant_after_use;
    ht_hashed hashed[HT_HASHED];
    ht_scopes scopes;
} ht_builder;

/* Reads the next field of a message that is not at its end. */
bool ht_next_field(ht_builder *builder, ht_cursor *cursor, ht_field *field);

/* Fails if the field has a different wire type. */
bool ht_expect(ht_builder *builder, const ht_field *field, uint32_t wire);

/* A string field as a span. If it will be shown as text, its bytes must be UTF-8. */
bool ht_read_string(ht_builder *builder, const ht_field *field, bool is_text, ht_span *span);

/* The value of a name in the main graph. If the name is new, it is added and `fresh` is set. The name must not be
 * empty. */
bool ht_value(ht_builder *builder, const uint8_t *begin, const uint8_t *end, int32_t *value, bool *fresh);

/* As ht_value, and records the definition as `kind` (HT_IS_...). Only an input and an initializer may share a name. */
bool ht_define(ht_builder *builder, const uint8_t *begin, const uint8_t *end, uint8_t kind, int32_t *value,
               bool *fresh);

/* Appends a constant whose message [begin, end) has been read. Its dims are already in constant_dims. */
bool ht_add_constant(ht_builder *builder, const ht_field *field, int32_t value, uint8_t source, const uint8_t *begin,
                     const uint8_t *end, const ht_tensor *tensor, ht_span node_name);

bool ht_add_node(ht_builder *builder, const ht_field *message);

enum { HT_SCOUT_FIELDS = 24, HT_SCOUT_RING = 32 };
typedef struct {
    ht_cursor ahead; /* fields that the scout has not seen yet; it stays HT_SCOUT_FIELDS ahead */
    struct {
        uint64_t hash;
        int32_t guess; /* the value it probably is */
    } ring[HT_SCOUT_RING]; /* the most recent names */
    uint32_t met;
} ht_scout;

/* Prefetches for one more field. */
void ht_scout_field(ht_builder *builder, ht_scout *scout);

typedef struct {
    const uint8_t *name, *name_end;
    ht_field data; /* last field that holds the value; number 0: absent */
    int64_t count; /* number of entries of a repeated value */
} ht_attribute;

/* Checks an attribute one level deep and adds its nested graphs to builder->scopes.pending. */
bool ht_read_attribute(ht_builder *builder, const ht_field *field, ht_attribute *attribute);

/* Walks the pending nested graphs of a vertex and appends its captures. */
bool ht_capture(ht_builder *builder, int32_t node);
void ht_scopes_free(ht_scopes *scopes);

/* Sorts the vertices topologically if they are not sorted yet, and sets value_producer. Fails on a cycle. */
bool ht_order(ht_builder *builder);

#define HT_OFFSET(builder, pointer) ((pointer) - (builder)->base)

#endif
