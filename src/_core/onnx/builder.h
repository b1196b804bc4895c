/* What the parts of the index builder share: index.c (model and graph), node.c, scope.c (nested graphs),
 * scout.c, order.c. Every function that gives bool fails by filling builder->error. */
#ifndef HETERO_ONNX_BUILDER_H
#define HETERO_ONNX_BUILDER_H

#include "index.h"

/* Nested graphs deeper than this are refused: protobuf itself parses at most 100 nested messages, three per graph. */
#define HT_MAX_GRAPH_DEPTH 31

/* More opset imports and functions than these are refused: each costs many times the bytes that state it. */
#define HT_MAX_OPSETS 4096
#define HT_MAX_FUNCTIONS 65536

/* Names bound by nested graphs, and the walk over them. */
typedef struct {
    ht_table table; /* names seen in nested graphs -> symbols */
    ht_i64s names;
    ht_i32s bound;      /* symbol -> how many of the graphs being walked define it */
    ht_i32s last_graph; /* symbol -> number of the graph that defined it last */
    ht_u8s last_kind;   /* symbol -> as what */
    ht_i32s bindings;   /* symbols in the order bound, for undoing */
    ht_i64s pending;    /* stack of begin, end, bindings before it (-1: not entered yet) */
    int32_t graphs;     /* nested graphs entered so far */
    ht_i32s captured_by; /* value -> 1 + vertex that captured it last */
} ht_scopes;

/* Hashes of names that the scout has met, by offset. */
enum { HT_HASHED = 1024 };
typedef struct {
    ht_span span; /* 0: unused */
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
    int64_t nodes, initializers, sparse_initializers, infos[3], opsets, functions; /* met so far */
    bool constant_after_use;
    ht_hashed hashed[HT_HASHED];
    ht_scopes scopes;
} ht_builder;

/* The next field of a message that has bytes left. */
bool ht_next_field(ht_builder *builder, ht_cursor *cursor, ht_field *field);

/* Fails unless the field has this wire type. */
bool ht_expect(ht_builder *builder, const ht_field *field, uint32_t wire);

/* A string field as a span; its bytes must be UTF-8 if it is to be shown as text. */
bool ht_read_string(ht_builder *builder, const ht_field *field, bool is_text, ht_span *span);

/* The value of a name in the main graph, which joins it if it is `fresh`. The name is not empty. */
bool ht_value(ht_builder *builder, const uint8_t *begin, const uint8_t *end, int32_t *value, bool *fresh);

/* The same, now defined as `kind` (HT_IS_...). Only an input and an initializer may share a name. */
bool ht_define(ht_builder *builder, const uint8_t *begin, const uint8_t *end, uint8_t kind, int32_t *value,
               bool *fresh);

/* Appends a constant whose message [begin, end) has been read; its dims are already in constant_dims. */
bool ht_add_constant(ht_builder *builder, const ht_field *field, int32_t value, uint8_t source, const uint8_t *begin,
                     const uint8_t *end, const ht_tensor *tensor, ht_span node_name);

bool ht_add_node(ht_builder *builder, const ht_field *message);

enum { HT_SCOUT_FIELDS = 24, HT_SCOUT_RING = 32 };
typedef struct {
    ht_cursor ahead; /* the fields of the graph that the scout has not seen; it keeps HT_SCOUT_FIELDS ahead */
    struct {
        uint64_t hash;
        int32_t guess; /* which value it may be */
    } ring[HT_SCOUT_RING]; /* the names met last */
    uint32_t met;
} ht_scout;

/* Looks at one field more. */
void ht_scout_field(ht_builder *builder, ht_scout *scout);

typedef struct {
    const uint8_t *name, *name_end;
    ht_field data; /* last field that holds its value; number 0: none */
    int64_t count; /* entries of a repeated value */
} ht_attribute;

/* Checks an attribute one level deep and notes its nested graphs in builder->scopes.pending. */
bool ht_read_attribute(ht_builder *builder, const ht_field *field, ht_attribute *attribute);

/* Walks the pending nested graphs of a vertex and appends what they capture. */
bool ht_capture(ht_builder *builder, int32_t node);
void ht_scopes_free(ht_scopes *scopes);

/* Sorts the vertices topologically unless they are; sets value_producer. Fails on a cycle. */
bool ht_order(ht_builder *builder);

#define HT_OFFSET(builder, pointer) ((pointer) - (builder)->base)

#endif
