/* Index of an ONNX file: arrays over its bytes, built in one pass over the wire format.
 *
 * Source: onnx.proto (onnx 1.23) and its IR rules (docs/IR.md). The pass walks ModelProto, GraphProto, every node with
 * its attributes one level deep, and the headers of tensors. Nested graphs are walked with an explicit stack to find
 * the names they capture; weights are skipped by their length. A keyed hash table maps names to dense ids. Afterwards
 * definitions are checked (every name is defined once, and every name that is read is defined), and the nodes are
 * sorted if the file's order is not topological.
 *
 * Cost: O(bytes outside weights), plus O(E + N log N) if the file is not in topological order. Nothing recurses, and
 * nothing is copied from the file; the ht_index owns all memory. This code does not use Python, so the reader can be
 * fuzzed alone.
 *
 * Terms: a *vertex* is a node of the main graph except an ONNX `Constant`. *Constants* are `Constant` nodes,
 * initializers and sparse initializers. A *value* is a name of the main graph. Offsets count bytes of the file. */
#ifndef HETERO_ONNX_INDEX_H
#define HETERO_ONNX_INDEX_H

#include "error.h"
#include "tensor.h"

/* Where a constant is defined. */
enum { HT_SOURCE_INITIALIZER, HT_SOURCE_SPARSE_INITIALIZER, HT_SOURCE_NODE };

/* Bits of value_defined. */
enum { HT_IS_INPUT = 1, HT_IS_INITIALIZER = 2, HT_IS_NODE_OUTPUT = 4, HT_IS_CONSTANT_OUTPUT = 8, HT_IS_OUTPUT = 16 };

/* Every array of the index: X(element type, name). Spans are offset << 24 | length, 0 for an absent string. A pair
 * `_begin`/`_end` is the body of a message; `_start`/`_end` is the same including its tag, with `_header` bytes in
 * between. */
#define HT_INDEX_ARRAYS(X)                                                                          \
    /* vertices, in topological order */                                                            \
    X(i64, node_start) X(i64, node_end) X(u8, node_header) X(i64, node_name) X(i32, node_op)        \
    X(i32, input_indptr) X(i32, inputs)     /* value ids, -1: absent optional input */              \
    X(i32, output_indptr) X(i32, outputs)                                                           \
    X(i32, capture_indptr) X(i32, captures) /* values that nested graphs read from the main graph, each once */ \
    /* distinct (domain, op type), as spans; domain "ai.onnx" is stored as "" */                    \
    X(i64, op_type) X(i64, op_domain) X(i32, op_first_node)                                         \
    /* values */                                                                                    \
    X(i64, value_name) X(u8, value_defined) X(i32, value_producer) X(i32, value_constant) X(i32, value_info) \
    /* constants, in file order */                                                                  \
    X(i32, constant_value) X(u8, constant_source) X(i64, constant_start) X(i64, constant_end)       \
    X(u8, constant_kind) X(i32, constant_dtype) X(i64, constant_begin) /* message; to constant_until */ \
    X(i64, constant_until) X(i64, constant_data_begin) X(i64, constant_data_end)                    \
    X(i32, constant_dims_indptr) X(i64, constant_dims) X(i64, constant_node_name)                   \
    /* graph inputs (section 11), outputs (12) and value infos (13); value -1: the graph has no such name */ \
    X(u8, info_section) X(i32, info_value) X(i64, info_start) X(i64, info_end)                      \
    X(i64, info_type_begin) X(i64, info_type_end)                                                   \
    /* metadata_props of vertices: the entries "affinity" (kind 0) and "layer_ann" (kind 1), in file order */     \
    X(i32, affinity_node) X(u8, affinity_kind) X(i64, affinity_value) X(i64, affinity_start) X(i64, affinity_end) \
    /* the rest of the model */                                                                     \
    X(i64, opset_domain) X(i64, opset_version)                                                      \
    X(i64, function_domain) X(i64, function_name) X(i64, function_overload)                         \
    X(i64, function_begin) X(i64, function_end)                                                     \
    X(i64, header_start) X(i64, header_end) /* fields of the model except graph and training_info */ \
    X(i64, rest_start) X(i64, rest_end)     /* fields of the graph that no other array covers */

typedef struct {
#define HT_MEMBER(type, name) ht_##type##s name;
    HT_INDEX_ARRAYS(HT_MEMBER)
#undef HT_MEMBER
    ht_table values; /* names -> ids */
    int64_t ir_version;
    ht_span graph_name;
    bool in_order; /* the file lists all nodes, including Constant nodes, before their readers */
} ht_index;

/* Fills `index`, which must be zeroed, from the file's bytes. On failure returns false and describes it in `error`. The
 * caller must free the index in either case. */
bool ht_index_build(const uint8_t *data, int64_t size, const uint64_t hash_key[2], ht_index *index, ht_error *error);

void ht_index_free(ht_index *index);

/* The arrays by number, for exporting: name, element size (1, 4 or 8), block, count. Returns false for numbers past the
 * last. */
bool ht_index_array(const ht_index *index, int number, const char **name, int *size, void **data, int64_t *count);

/* The first non-empty string in field `number` of a possibly malformed message; 0 if none precedes the first malformed
 * field. For error messages. */
ht_span ht_first_string(const uint8_t *base, int64_t begin, int64_t end, uint32_t number);

/* Keys of nodes: a node's name, or its first output if the name is empty, not unique, or the key of another node by
 * this rule. Entries are the vertices, then the Constant nodes. Expected O(names). */
typedef struct {
    ht_i64s key; /* span per entry */
    ht_table table;
} ht_keys;

bool ht_keys_build(const uint8_t *base, const ht_index *index, const uint64_t hash_key[2], ht_keys *keys,
                   ht_error *error);
void ht_keys_free(ht_keys *keys);

/* The type of a tensor. `*dtype`: 0 if not stated, -1 for another kind of value (such as a sequence). `*rank`: -1
 * without a shape. Appends two numbers per dim: its size and 0, or -1 and the span of its symbol (0: unknown). */
bool ht_read_type(const uint8_t *base, int64_t begin, int64_t end, int32_t *dtype, int64_t *rank, ht_i64s *sizes,
                  ht_i64s *symbols, ht_error *error);

#endif
