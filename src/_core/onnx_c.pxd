"""The C functions of the ONNX reader for ``_onnx``."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef extern from "onnx/index.h" nogil:
    ctypedef int64_t ht_span
    ctypedef struct ht_i64s:
        int64_t *data
        int64_t count
    ctypedef struct ht_i32s:
        int32_t *data
        int64_t count
    ctypedef struct ht_table:
        pass
    ctypedef struct ht_cursor:
        const uint8_t *at
        const uint8_t *end
    ctypedef struct ht_field:
        int number
        int wire
        uint64_t value
        const uint8_t *begin
        const uint8_t *end
    int HT_VARINT
    int HT_LEN
    int HT_FIXED32
    const uint8_t *ht_varint(const uint8_t *at, const uint8_t *end, uint64_t *value)
    const char *ht_next(ht_cursor *cursor, ht_field *field)
    ctypedef struct ht_error:
        char message[160]
        bint no_memory
        int64_t offset
        bint has_subject
        ht_span subject
        int place_count
        int place[8]
        int64_t place_begin[8]
        int64_t place_end[8]
        int64_t ordinal[8]
    ctypedef struct ht_tensor:
        int32_t dtype
        int kind
        int64_t data_begin
        int64_t data_end
        int64_t elements
    ctypedef struct ht_index:
        ht_i64s value_name
        ht_i64s constant_dims
        ht_table values
        int64_t ir_version
        ht_span graph_name
        bint in_order
    ctypedef struct ht_keys:
        ht_i64s key
        ht_table table
    int64_t ht_span_offset(ht_span span)
    int64_t ht_span_length(ht_span span)
    uint64_t ht_hash(const uint64_t *key, const uint8_t *string, int64_t length)
    int32_t ht_table_find(const ht_table *table, const ht_span *spans, const uint8_t *base, uint64_t hash,
                          const uint8_t *string, int64_t length)
    bint ht_index_build(const uint8_t *data, int64_t size, const uint64_t *hash_key, ht_index *index, ht_error *error)
    void ht_index_free(ht_index *index)
    bint ht_index_array(const ht_index *index, int number, const char **name, int *size, void **data, int64_t *count)
    ht_span ht_first_string(const uint8_t *base, int64_t begin, int64_t end, int number)
    bint ht_keys_build(const uint8_t *base, const ht_index *index, const uint64_t *hash_key, ht_keys *keys,
                       ht_error *error)
    void ht_keys_free(ht_keys *keys)
    bint ht_read_type(const uint8_t *base, int64_t begin, int64_t end, int32_t *dtype, int64_t *rank, ht_i64s *sizes,
                      ht_i64s *symbols, ht_error *error)
    bint ht_read_int64s(const uint8_t *base, const ht_field *field, ht_i64s *values, int64_t limit, ht_error *error)
    bint ht_read_tensor(const uint8_t *base, ht_cursor body, ht_i64s *dims, ht_tensor *tensor, ht_error *error)


cdef extern from "onnx/skeleton.h" nogil:
    ctypedef struct ht_u8s:
        uint8_t *data
        int64_t count
    ctypedef struct ht_skeleton_choice:
        const uint8_t *constants
        const uint8_t *infos
        const uint8_t *keeps_name
        int64_t max_vector
        const char *hidden
    bint ht_skeleton_write(const uint8_t *base, const ht_index *index, const ht_skeleton_choice *choice, ht_u8s *out)
    void ht_skeleton_values(const uint8_t *base, const ht_index *index, const uint64_t *hash_key,
                            const uint8_t *answer_base, const ht_index *answer, int32_t *values)
