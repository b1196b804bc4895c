#include "tensor.h"

#include <inttypes.h>

enum { DIMS = 1, DATA_TYPE = 2, SEGMENT = 3, FLOAT_DATA = 4, INT32_DATA = 5, STRING_DATA = 6, INT64_DATA = 7,
       NAME = 8, RAW_DATA = 9, DOUBLE_DATA = 10, UINT64_DATA = 11, EXTERNAL_DATA = 13, DATA_LOCATION = 14 };
enum { STRING = 8, COMPLEX64 = 14, COMPLEX128 = 15, FLOAT6E2M3 = 27, FLOAT6E3M2 = 28, LAST_TYPE = 28 };

/* Bits of an element and the typed field that may hold it, by onnx.TensorProto.DataType. */
static const struct {
    uint8_t bits, field;
} element[LAST_TYPE + 1] = {
    [1] = {32, FLOAT_DATA},   [2] = {8, INT32_DATA},    [3] = {8, INT32_DATA},    [4] = {16, INT32_DATA},
    [5] = {16, INT32_DATA},   [6] = {32, INT32_DATA},   [7] = {64, INT64_DATA},   [8] = {0, STRING_DATA},
    [9] = {8, INT32_DATA},    [10] = {16, INT32_DATA},  [11] = {64, DOUBLE_DATA}, [12] = {32, UINT64_DATA},
    [13] = {64, UINT64_DATA}, [14] = {64, FLOAT_DATA},  [15] = {128, DOUBLE_DATA}, [16] = {16, INT32_DATA},
    [17] = {8, INT32_DATA},   [18] = {8, INT32_DATA},   [19] = {8, INT32_DATA},   [20] = {8, INT32_DATA},
    [21] = {4, INT32_DATA},   [22] = {4, INT32_DATA},   [23] = {4, INT32_DATA},   [24] = {8, INT32_DATA},
    [25] = {2, INT32_DATA},   [26] = {2, INT32_DATA},   [27] = {6, INT32_DATA},   [28] = {6, INT32_DATA},
};

bool ht_expect_wire(const uint8_t *base, const ht_field *field, uint32_t wire, ht_error *error)
{
    if (field->wire == wire)
        return true;
    return ht_fail(error, field->start - base, "field %" PRIu32 " has wire type %" PRIu32 ", expected %" PRIu32,
                   field->number, field->wire, wire);
}

bool ht_read_int64s(const uint8_t *base, const ht_field *field, ht_i64s *values, int64_t limit, ht_error *error)
{
    if (field->wire == HT_VARINT) {
        if (limit < 1)
            return ht_fail(error, field->start - base, "more entries than allowed (rank above %d)", HT_MAX_RANK);
        return ht_push_i64(values, (int64_t)field->value) || ht_fail_memory(error);
    }
    if (!ht_expect_wire(base, field, HT_LEN, error))
        return false;
    for (const uint8_t *at = field->begin; at < field->end;) {
        uint64_t value;
        if ((at = ht_varint(at, field->end, &value)) == NULL)
            return ht_fail(error, field->begin - base, "packed varint is cut off or has more than 64 bits");
        if (limit-- < 1)
            return ht_fail(error, field->start - base, "more entries than allowed (rank above %d)", HT_MAX_RANK);
        if (!ht_push_i64(values, (int64_t)value))
            return ht_fail_memory(error);
    }
    return true;
}

/* The number of elements: the product of the dims from index `first`. Fails if it, or the size in bytes, exceeds 63
 * bits. */
static bool count_elements(const ht_i64s *dims, int64_t first, int bits, int64_t *elements, int64_t at, ht_error *error)
{
    int64_t product = 1, bytes;
    bool empty = false;
    for (int64_t i = first; i < dims->count; i++) {
        if (dims->data[i] < 0)
            return ht_fail(error, at, "dims[%" PRId64 "] is negative: %" PRId64, i - first, dims->data[i]);
        if (dims->data[i] == 0)
            empty = true;
        else if (__builtin_mul_overflow(product, dims->data[i], &product))
            return ht_fail(error, at, "the product of dims does not fit 63 bits");
    }
    if (__builtin_mul_overflow(product, (int64_t)(bits < 8 ? 8 : bits) / 8, &bytes))
        return ht_fail(error, at, "the size in bytes that dims ask for does not fit 63 bits");
    *elements = empty ? 0 : product;
    return true;
}

/* Entries of a typed field over all its occurrences. `chunk`: payload if there is a single packed occurrence. */
typedef struct {
    int64_t entries, occurrences;
    const uint8_t *begin, *end;
} typed_data;

static bool read_typed(const uint8_t *base, const ht_field *field, typed_data *typed, ht_error *error)
{
    int64_t more = 1;
    uint32_t scalar = field->number == FLOAT_DATA ? HT_FIXED32 : field->number == DOUBLE_DATA ? HT_FIXED64 : HT_VARINT;
    typed->occurrences++;
    if (field->number == STRING_DATA) {
        if (!ht_expect_wire(base, field, HT_LEN, error))
            return false;
    } else if (field->wire == HT_LEN) {
        int64_t size = field->end - field->begin, width = scalar == HT_FIXED32 ? 4 : 8;
        if (scalar == HT_VARINT)
            more = ht_count_varints(field->begin, field->end);
        else
            more = size % width == 0 ? size / width : -1;
        if (more < 0)
            return ht_fail(error, field->begin - base, "packed data of field %" PRIu32 " are malformed", field->number);
        typed->begin = field->begin;
        typed->end = field->end;
    } else if (!ht_expect_wire(base, field, scalar, error)) {
        return false;
    } else {
        typed->begin = NULL;
    }
    typed->entries += more;
    return true;
}

bool ht_read_tensor(const uint8_t *base, ht_cursor body, ht_i64s *dims, ht_tensor *tensor, ht_error *error)
{
    int64_t first_dim = dims->count, at = body.at - base;
    typed_data typed[UINT64_DATA + 1] = {{0}};
    const uint8_t *raw_begin = NULL, *raw_end = NULL;
    uint64_t dtype = 0, location = 0;
    bool has_external = false;
    *tensor = (ht_tensor){0};

    while (body.at < body.end) {
        ht_field field;
        const char *trouble = ht_next(&body, &field);
        if (trouble != NULL)
            return ht_fail(error, body.at - base, "%s", trouble);
        switch (field.number) {
        case DIMS:
            if (!ht_read_int64s(base, &field, dims, HT_MAX_RANK - (dims->count - first_dim), error))
                return false;
            break;
        case DATA_TYPE:
        case DATA_LOCATION:
            if (!ht_expect_wire(base, &field, HT_VARINT, error))
                return false;
            *(field.number == DATA_TYPE ? &dtype : &location) = field.value;
            break;
        case SEGMENT:
            return ht_fail(error, field.start - base, "segmented tensors are not supported");
        case FLOAT_DATA:
        case INT32_DATA:
        case STRING_DATA:
        case INT64_DATA:
        case DOUBLE_DATA:
        case UINT64_DATA:
            if (!read_typed(base, &field, &typed[field.number], error))
                return false;
            break;
        case NAME:
            if (!ht_expect_wire(base, &field, HT_LEN, error))
                return false;
            tensor->name_offset = field.begin - base;
            tensor->name_length = field.end - field.begin;
            break;
        case RAW_DATA:
            if (!ht_expect_wire(base, &field, HT_LEN, error))
                return false;
            raw_begin = field.begin;
            raw_end = field.end;
            break;
        case EXTERNAL_DATA:
            if (!ht_expect_wire(base, &field, HT_LEN, error))
                return false;
            has_external = true;
            break;
        default:
            break;
        }
    }

    if (dtype == 0)
        return ht_fail(error, at, "data_type is missing or undefined");
    if (dtype > LAST_TYPE)
        return ht_fail(error, at, "data_type %" PRIu64 " is unknown (expected 1 to %d)", dtype, LAST_TYPE);
    int bits = element[dtype].bits;
    int64_t n = 0;
    if (!count_elements(dims, first_dim, bits, &n, at, error))
        return false;
    tensor->dtype = (int32_t)dtype;
    tensor->elements = n;

    int64_t entries = 0;
    for (int number = FLOAT_DATA; number <= UINT64_DATA; number++) {
        entries += typed[number].entries;
        if (typed[number].entries > 0 && number != element[dtype].field)
            return ht_fail(error, at, "data of data_type %" PRIu64 " stand in field %d, expected field %d or raw_data",
                           dtype, number, element[dtype].field);
    }
    if (location > 1)
        return ht_fail(error, at, "data_location %" PRIu64 " is unknown", location);
    if (location == 1) {
        if (dtype == STRING)
            return ht_fail(error, at, "strings cannot be external data");
        if (raw_end > raw_begin || entries > 0)
            return ht_fail(error, at, "external data and embedded data are both given");
        if (!has_external)
            return ht_fail(error, at, "data are external, but no location is given");
        tensor->kind = HT_DATA_EXTERNAL;
        return true;
    }
    if (raw_begin != NULL) {
        /* Whole bytes and the remainder are computed separately, so that sub-byte types cannot overflow. */
        int64_t expected = n / 8 * bits + (n % 8 * bits + 7) / 8;
        if (dtype == STRING)
            return ht_fail(error, at, "strings cannot stand in raw_data");
        if (entries > 0)
            return ht_fail(error, at, "raw_data and a typed data field are both given");
        if (raw_end - raw_begin != expected)
            return ht_fail(error, raw_begin - base, "raw_data has %" PRId64 " bytes, dims and data_type need %" PRId64,
                           (int64_t)(raw_end - raw_begin), expected);
        tensor->kind = HT_DATA_RAW;
        tensor->data_begin = raw_begin - base;
        tensor->data_end = raw_end - base;
        return true;
    }
    int64_t per_entry = bits == 4 ? 2 : bits == 2 ? 4 : 1;
    int64_t per_element = dtype == COMPLEX64 || dtype == COMPLEX128 ? 2 : 1;
    int64_t expected = per_element == 2 ? n * 2 : n / per_entry + (n % per_entry != 0);
    if (entries != expected)
        return ht_fail(error, at, "the data have %" PRId64 " entries, dims and data_type need %" PRId64, entries,
                       expected);
    const typed_data *data = &typed[element[dtype].field];
    bool fixed = element[dtype].field == FLOAT_DATA || element[dtype].field == DOUBLE_DATA;
    tensor->kind = HT_DATA_TYPED;
    if (fixed && data->occurrences == 1 && data->begin != NULL) {
        tensor->kind = HT_DATA_PACKED;
        tensor->data_begin = data->begin - base;
        tensor->data_end = data->end - base;
    }
    return true;
}

bool ht_read_sparse_tensor(const uint8_t *base, ht_cursor body, ht_i64s *dims, ht_tensor *tensor, ht_error *error)
{
    enum { VALUES = 1, INDICES = 2, DENSE_DIMS = 3, INT64 = 7 };
    int64_t first_dim = dims->count, at = body.at - base;
    ht_cursor part[3] = {{0}};
    ht_tensor indices;

    for (ht_cursor cursor = body; cursor.at < cursor.end;) {
        ht_field field = {0};
        const char *trouble = ht_next(&cursor, &field);
        if (trouble != NULL)
            return ht_fail(error, cursor.at - base, "%s", trouble);
        if (field.number == VALUES || field.number == INDICES) {
            if (!ht_expect_wire(base, &field, HT_LEN, error))
                return false;
            if (part[field.number].at != NULL)
                return ht_fail(error, field.start - base, "field %" PRIu32 " of a sparse tensor is given twice",
                               field.number);
            part[field.number] = (ht_cursor){field.begin, field.end};
        }
    }
    if (part[VALUES].at == NULL || part[INDICES].at == NULL)
        return ht_fail(error, at, "a sparse tensor needs values and indices");

    if (!ht_read_tensor(base, part[INDICES], dims, &indices, error))
        return false;
    int64_t index_rank = dims->count - first_dim, index_columns = index_rank == 2 ? dims->data[first_dim + 1] : 1;
    int64_t rows = index_rank > 0 ? dims->data[first_dim] : 0;
    dims->count = first_dim;
    if (indices.dtype != INT64 || index_rank < 1 || index_rank > 2)
        return ht_fail(error, at, "indices of a sparse tensor must be int64 of rank 1 or 2");

    if (!ht_read_tensor(base, part[VALUES], dims, tensor, error))
        return false;
    int64_t value_rank = dims->count - first_dim;
    dims->count = first_dim;
    if (value_rank != 1 || tensor->elements != rows)
        return ht_fail(error, at, "values of a sparse tensor must be of rank 1, one for each of %" PRId64 " indices",
                       rows);

    for (ht_cursor cursor = body; cursor.at < cursor.end;) {
        ht_field field = {0};
        (void)ht_next(&cursor, &field); /* cannot fail: read above */
        if (field.number == DENSE_DIMS &&
            !ht_read_int64s(base, &field, dims, HT_MAX_RANK - (dims->count - first_dim), error))
            return false;
    }
    int64_t rank = dims->count - first_dim;
    if (index_rank == 2 && index_columns != rank)
        return ht_fail(error, at, "indices of a sparse tensor have %" PRId64 " columns, its rank is %" PRId64,
                       index_columns, rank);
    if (!count_elements(dims, first_dim, element[tensor->dtype].bits, &tensor->elements, at, error))
        return false;
    tensor->kind = HT_DATA_SPARSE;
    tensor->data_begin = tensor->data_end = 0;
    return true;
}
