/* Index of an ONNX file: arrays over its bytes, made by one pass of the wire format.
 *
 * Source: onnx.proto (onnx 1.23) and its IR rules (docs/IR.md). The pass walks ModelProto, GraphProto, every node with
 * its attributes one level deep, and tensors' headers; nested graphs are walked with a stack of their own, for the
 * names they capture; weights are skipped by their length. Names become dense ids in a keyed hash table. Afterwards
 * definitions are checked (every name defined once, everything read is defined) and nodes sorted if the file's order
 * is not topological.
 *
 * Cost: O(bytes outside weights), plus O(E + N log N) for a file out of order. Nothing recurses; nothing is copied
 * from the file; all memory belongs to the ht_index. No Python here, so the reader can be fuzzed alone.
 *
 * Words: a *vertex* is a node of the main graph other than an ONNX `Constant`; those are *constants* along with
 * initializers and sparse initializers. A *value* is a name of the main graph. Offsets count bytes of the file. */
#ifndef HETERO_ONNX_INDEX_H
#define HETERO_ONNX_INDEX_H

#include "error.h"
#include "tensor.h"

/* Where a constant is defined. */
enum { HT_SOURCE_INITIALIZER, HT_SOURCE_SPARSE_INITIALIZER, HT_SOURCE_NODE };

/* Bits of value_defined. */
enum { HT_IS_INPUT = 1, HT_IS_INITIALIZER = 2, HT_IS_NODE_OUTPUT = 4, HT_IS_CONSTANT_OUTPUT = 8, HT_IS_OUTPUT = 16 };

/* Every array of the index: X(element type, name). Spans are offset << 24 | length, 0 for an absent string; a pair
 * `_begin`/`_end` is the body of a message; `_start`/`_end` the same with its tag, `_header` the bytes between. */
#define HT_INDEX_ARRAYS(X)                                                                          \
    /* vertices, in topological order */                                                            \
    X(i64, node_start) X(i64, node_end) X(u8, node_header) X(i64, node_name) X(i32, node_op)        \
    X(i32, input_indptr) X(i32, inputs)     /* value ids, -1: absent optional input */              \
    X(i32, output_indptr) X(i32, outputs)                                                           \
    X(i32, capture_indptr) X(i32, captures) /* what nested graphs read from outside, each once */   \
    /* distinct (domain, op type): spans; domain "ai.onnx" is written "" */                         \
    X(i64, op_type) X(i64, op_domain) X(i32, op_first_node)                                         \
    /* values */                                                                                    \
    X(i64, value_name) X(u8, value_defined) X(i32, value_producer) X(i32, value_constant) X(i32, value_info) \
    /* constants, in file order */                                                                  \
    X(i32, constant_value) X(u8, constant_source) X(i64, constant_start) X(i64, constant_end)       \
    X(u8, constant_kind) X(i32, constant_dtype) X(i64, constant_begin) /* message; to constant_until */ \
    X(i64, constant_until) X(i64, constant_data_begin) X(i64, constant_data_end)                    \
    X(i32, constant_dims_indptr) X(i64, constant_dims) X(i64, constant_node_name)                   \
    /* graph inputs (section 11), outputs (12) and value infos (13); value -1: a name the graph lacks */ \
    X(u8, info_section) X(i32, info_value) X(i64, info_start) X(i64, info_end)                      \
    X(i64, info_type_begin) X(i64, info_type_end)                                                   \
    /* metadata_props of vertices: entries "affinity" and "layer_ann" (kind 0, 1), in file order */ \
    X(i32, affinity_node) X(u8, affinity_kind) X(i64, affinity_value) X(i64, affinity_start) X(i64, affinity_end) \
    /* the model around the graph */                                                                \
    X(i64, opset_domain) X(i64, opset_version)                                                      \
    X(i64, function_domain) X(i64, function_name) X(i64, function_overload)                         \
    X(i64, function_begin) X(i64, function_end)                                                     \
    X(i64, header_start) X(i64, header_end) /* fields of the model but graph and training_info */   \
    X(i64, rest_start) X(i64, rest_end)     /* fields of the graph that are in no array above */

typedef struct {
#define HT_MEMBER(type, name) ht_##type##s name;
    HT_INDEX_ARRAYS(HT_MEMBER)
#undef HT_MEMBER
    ht_table values; /* names -> ids */
    int64_t ir_version;
    ht_span graph_name;
    bool in_order; /* the file lists nodes, Constant nodes too, before what reads them */
} ht_index;

/* Fills `index`, which must be all zero, from the file's bytes. On failure: false, and `error` says why; the index
 * must be freed in either case. */
bool ht_index_build(const uint8_t *data, int64_t size, const uint64_t hash_key[2], ht_index *index, ht_error *error);

void ht_index_free(ht_index *index);

/* The arrays by number, for the caller that exports them: name, element size (1, 4 or 8), block, count. False past
 * the last. */
bool ht_index_array(const ht_index *index, int number, const char **name, int *size, void **data, int64_t *count);

/* The first non-empty string in field `number` of a message, leniently: 0 if there is none before the first trouble.
 * For error messages about malformed messages. */
ht_span ht_first_string(const uint8_t *base, int64_t begin, int64_t end, uint32_t number);

/* Keys: the name of a node, or of its first output where the name is empty, not unique, or the key of another node
 * by that rule. Entries are the vertices, then the Constant nodes. Expected O(names). */
typedef struct {
    ht_i64s key; /* span per entry */
    ht_table table;
} ht_keys;

bool ht_keys_build(const uint8_t *base, const ht_index *index, const uint64_t hash_key[2], ht_keys *keys,
                   ht_error *error);
void ht_keys_free(ht_keys *keys);

/* TypeProto of a tensor: `*dtype` 0 if nothing is stated, -1 if it is of another kind (a sequence, ...). `*rank` -1:
 * no shape. Appends per dim a size and 0, or -1 and the span of its symbol (0: unknown). */
bool ht_read_type(const uint8_t *base, int64_t begin, int64_t end, int32_t *dtype, int64_t *rank, ht_i64s *sizes,
                  ht_i64s *symbols, ht_error *error);

#endif
