/* TensorProto and SparseTensorProto: type, dims and location of the data, checked for consistency.
 *
 * Cost: O(bytes of the message), without reading raw_data or packed float data. */
#ifndef HETERO_ONNX_TENSOR_H
#define HETERO_ONNX_TENSOR_H

#include "error.h"
#include "wire.h"

typedef enum {
    HT_DATA_RAW,       /* raw_data: the data range holds little-endian elements */
    HT_DATA_PACKED,    /* float_data or double_data as one packed field: as HT_DATA_RAW */
    HT_DATA_TYPED,     /* other typed fields, which must be parsed from the message */
    HT_DATA_EXTERNAL,  /* in an external file */
    HT_DATA_SPARSE,    /* the message is a SparseTensorProto */
    HT_DATA_ATTRIBUTE, /* the message is an AttributeProto (value_float, value_ints, ... of a Constant node) */
} ht_data_kind;

#define HT_MAX_RANK 64 /* NumPy's limit */

typedef struct {
    int64_t name_offset, name_length; /* 0, 0: none */
    int32_t dtype;                    /* onnx.TensorProto.DataType */
    ht_data_kind kind;
    int64_t data_begin, data_end; /* for RAW and PACKED */
    int64_t elements;
} ht_tensor;

/* Reads the message [body.at, body.end) of a file at `base`; appends its dims to `dims`. */
bool ht_read_tensor(const uint8_t *base, ht_cursor body, ht_i64s *dims, ht_tensor *tensor, ht_error *error);
bool ht_read_sparse_tensor(const uint8_t *base, ht_cursor body, ht_i64s *dims, ht_tensor *tensor, ht_error *error);

/* As ht_next for known fields, but also fails (by ht_fail) if the wire type does not match the field. */
bool ht_expect_wire(const uint8_t *base, const ht_field *field, uint32_t wire, ht_error *error);

/* Appends a repeated int64 field, packed or not. `limit`: the maximum total count. */
bool ht_read_int64s(const uint8_t *base, const ht_field *field, ht_i64s *values, int64_t limit, ht_error *error);

#endif
