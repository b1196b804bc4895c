/* State shared by the parts of the index builder (onnx_index.c, onnx_scope.c, onnx_order.c). */
#ifndef HETERO_ONNX_BUILDER_H
#define HETERO_ONNX_BUILDER_H

#include "onnx_index.h"

/* Nested graphs deeper than this are refused: protobuf itself parses at most 100 nested messages, three per graph. */
#define HT_MAX_GRAPH_DEPTH 31

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

/* Hashes of names met lately, by offset; see the scout in onnx_index.c. */
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

/* The value of a name in the main graph, made known if it is new. False: failed. */
bool ht_value(ht_builder *builder, const uint8_t *begin, const uint8_t *end, int32_t *value, bool *fresh);

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
