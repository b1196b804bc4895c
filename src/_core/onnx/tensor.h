/* TensorProto and SparseTensorProto: type, dims and where the data lie, all checked against each other.
 *
 * Cost: O(bytes of the message), without touching raw_data or packed float data. */
#ifndef HETERO_ONNX_TENSOR_H
#define HETERO_ONNX_TENSOR_H

#include "error.h"
#include "wire.h"

typedef enum {
    HT_DATA_RAW,       /* raw_data: data range holds little-endian elements */
    HT_DATA_PACKED,    /* float_data or double_data in one packed field: the same */
    HT_DATA_TYPED,     /* other typed fields: to be parsed from the message */
    HT_DATA_EXTERNAL,  /* in a file of its own */
    HT_DATA_SPARSE,    /* the message is a SparseTensorProto */
    HT_DATA_ATTRIBUTE, /* the message is an AttributeProto (value_float, value_ints, ... of a Constant node) */
} ht_data_kind;

#define HT_MAX_RANK 64 /* NumPy's limit */

typedef struct {
    int64_t name_offset, name_length; /* 0, 0: none */
    int32_t dtype;                    /* onnx.TensorProto.DataType */
    ht_data_kind kind;
    int64_t data_begin, data_end; /* of RAW and PACKED */
    int64_t elements;
} ht_tensor;

/* Reads the message [body.at, body.end) of a file at `base`; appends its dims to `dims`. */
bool ht_read_tensor(const uint8_t *base, ht_cursor body, ht_i64s *dims, ht_tensor *tensor, ht_error *error);
bool ht_read_sparse_tensor(const uint8_t *base, ht_cursor body, ht_i64s *dims, ht_tensor *tensor, ht_error *error);

/* ht_next for known fields: also fails, by ht_fail, if the wire type is not the field's. */
bool ht_expect_wire(const uint8_t *base, const ht_field *field, uint32_t wire, ht_error *error);

/* A repeated int64 field, packed or not. `limit`: how many there may be in all. */
bool ht_read_int64s(const uint8_t *base, const ht_field *field, ht_i64s *values, int64_t limit, ht_error *error);

#endif
