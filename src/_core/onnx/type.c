/* TypeProto of a tensor value: element type and shape. */
#include "index.h"

#include <inttypes.h>

enum { LAST_TYPE = 28 };

static bool next_field(const uint8_t *base, ht_cursor *cursor, ht_field *field, ht_error *error)
{
    const char *trouble = ht_next(cursor, field);
    return trouble == NULL || ht_fail(error, cursor->at - base, "%s", trouble);
}

static bool read_dim(const uint8_t *base, ht_cursor cursor, ht_i64s *sizes, ht_i64s *symbols, ht_error *error)
{
    enum { VALUE = 1, SYMBOL = 2 };
    int64_t size = -1;
    ht_span symbol = 0;
    ht_field field;
    while (cursor.at < cursor.end) {
        if (!next_field(base, &cursor, &field, error))
            return false;
        if (field.number == VALUE) {
            if (!ht_expect_wire(base, &field, HT_VARINT, error))
                return false;
            size = (int64_t)field.value < 0 ? -1 : (int64_t)field.value; /* exporters write -1 for an unknown size */
            symbol = 0;
        } else if (field.number == SYMBOL) {
            if (!ht_expect_wire(base, &field, HT_LEN, error))
                return false;
            if (field.value > HT_MAX_NAME || !ht_is_utf8(field.begin, (int64_t)field.value))
                return ht_fail(error, field.begin - base, "the name of a dim is too long or not UTF-8");
            size = -1;
            symbol = field.value == 0 ? 0 : ht_make_span(field.begin - base, (int64_t)field.value);
        }
    }
    return (ht_push_i64(sizes, size) && ht_push_i64(symbols, symbol)) || ht_fail_memory(error);
}

static bool read_shape(const uint8_t *base, ht_cursor cursor, int64_t *rank, ht_i64s *sizes, ht_i64s *symbols,
                       ht_error *error)
{
    enum { DIM = 1 };
    ht_field field;
    *rank = 0;
    while (cursor.at < cursor.end) {
        if (!next_field(base, &cursor, &field, error))
            return false;
        if (field.number != DIM)
            continue;
        if (!ht_expect_wire(base, &field, HT_LEN, error))
            return false;
        if (++*rank > HT_MAX_RANK)
            return ht_fail(error, field.start - base, "the shape's rank is above %d", HT_MAX_RANK);
        if (!read_dim(base, (ht_cursor){field.begin, field.end}, sizes, symbols, error))
            return false;
    }
    return true;
}

bool ht_read_type(const uint8_t *base, int64_t begin, int64_t end, int32_t *dtype, int64_t *rank, ht_i64s *sizes,
                  ht_i64s *symbols, ht_error *error)
{
    enum { TENSOR = 1, ELEMENT_TYPE = 1, SHAPE = 2, DENOTATION = 6, LAST_KIND = 9 };
    ht_field field, kind = {0};
    bool has_shape = false;
    *error = (ht_error){.offset = -1};
    *dtype = 0;
    *rank = -1;
    for (ht_cursor cursor = {base + begin, base + end}; cursor.at < cursor.end;) {
        if (!next_field(base, &cursor, &field, error))
            return false;
        if (field.number > LAST_KIND || field.number == DENOTATION)
            continue;
        if (!ht_expect_wire(base, &field, HT_LEN, error))
            return false;
        if (kind.number != 0)
            return ht_fail(error, field.start - base, "a type is given twice");
        kind = field;
    }
    if (kind.number != TENSOR) {
        *dtype = kind.number == 0 ? 0 : -1;
        return true;
    }
    for (ht_cursor cursor = {kind.begin, kind.end}; cursor.at < cursor.end;) {
        if (!next_field(base, &cursor, &field, error))
            return false;
        if (field.number == ELEMENT_TYPE) {
            if (!ht_expect_wire(base, &field, HT_VARINT, error))
                return false;
            if (field.value > LAST_TYPE)
                return ht_fail(error, field.start - base, "element type %" PRIu64 " is unknown (expected 1 to %d)",
                               field.value, LAST_TYPE);
            *dtype = (int32_t)field.value;
        } else if (field.number == SHAPE) {
            if (!ht_expect_wire(base, &field, HT_LEN, error))
                return false;
            if (has_shape)
                return ht_fail(error, field.start - base, "a shape is given twice");
            has_shape = true;
            if (!read_shape(base, (ht_cursor){field.begin, field.end}, rank, sizes, symbols, error))
                return false;
        }
    }
    return true;
}
