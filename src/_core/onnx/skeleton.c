#include "skeleton.h"

#include <inttypes.h>
#include <stdio.h>

enum { LONGEST_VARINT = 10, LONGEST_SHORT_NAME = 9, LONGEST_SYMBOL = 64 };

typedef struct {
    const uint8_t *base;
    const ht_index *index;
    const ht_skeleton_choice *choice;
    ht_u8s *out;
} writer;

/* ---- bytes ------------------------------------------------------------------------------------------------ */

static bool put(ht_u8s *out, const void *bytes, int64_t size)
{
    int64_t at = out->count;
    if (!ht_resize_u8(out, at + size))
        return false;
    if (size > 0)
        memcpy(out->data + at, bytes, (size_t)size);
    return true;
}

static bool put_varint(ht_u8s *out, uint64_t number)
{
    uint8_t bytes[LONGEST_VARINT];
    int size = 0;
    for (; number > 0x7f; number >>= 7)
        bytes[size++] = (uint8_t)(number | 0x80);
    bytes[size++] = (uint8_t)number;
    return put(out, bytes, size);
}

static bool put_tag(ht_u8s *out, uint32_t number, uint32_t wire) { return put_varint(out, number << 3 | wire); }

static bool put_number(ht_u8s *out, uint32_t field, uint64_t number)
{
    return put_tag(out, field, HT_VARINT) && put_varint(out, number);
}

static bool put_bytes(ht_u8s *out, uint32_t field, const void *bytes, int64_t size)
{
    return put_tag(out, field, HT_LEN) && put_varint(out, (uint64_t)size) && put(out, bytes, size);
}

/* begin_message, then the fields, then end_message, which inserts the length before them. */
static bool begin_message(ht_u8s *out, uint32_t field, int64_t *begin)
{
    bool done = put_tag(out, field, HT_LEN);
    *begin = out->count;
    return done;
}

static bool end_message(ht_u8s *out, int64_t begin)
{
    int64_t size = out->count - begin;
    if (!put_varint(out, (uint64_t)size))
        return false;
    uint8_t length[LONGEST_VARINT];
    size_t length_size = (size_t)(out->count - begin - size);
    memcpy(length, out->data + begin + size, length_size);
    memmove(out->data + begin + length_size, out->data + begin, (size_t)size);
    memcpy(out->data + begin, length, length_size);
    return true;
}

/* ---- names ------------------------------------------------------------------------------------------------ */

static bool put_name(const writer *w, uint32_t field, int32_t value)
{
    char name[LONGEST_SHORT_NAME + 1];
    if (value < 0)
        return put_bytes(w->out, field, NULL, 0);
    if (w->choice->keeps_name[value]) {
        ht_span span = w->index->value_name.data[value];
        return put_bytes(w->out, field, w->base + ht_span_offset(span), ht_span_length(span));
    }
    return put_bytes(w->out, field, name, snprintf(name, sizeof name, "%c%" PRIx32, HT_SHORT_NAME, (uint32_t)value));
}

/* The value of a short name, or -1. */
static int64_t value_of(const uint8_t *name, int64_t length)
{
    uint32_t value = 0;
    if (length < 2 || length > LONGEST_SHORT_NAME || name[0] != HT_SHORT_NAME)
        return -1;
    for (int64_t i = 1; i < length; i++) {
        uint32_t digit = name[i] <= '9' ? (uint32_t)name[i] - '0' : (uint32_t)name[i] - 'a' + 10;
        if (digit > 15)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

void ht_skeleton_values(const uint8_t *base, const ht_index *index, const uint64_t hash_key[2],
                        const uint8_t *answer_base, const ht_index *answer, int32_t *values)
{
    int64_t count = index->value_name.count;
    for (int64_t value = 0; value < count; value++)
        values[value] = -1;
    for (int64_t other = 0; other < answer->value_name.count; other++) {
        ht_span span = answer->value_name.data[other];
        const uint8_t *name = answer_base + ht_span_offset(span);
        int64_t value = value_of(name, ht_span_length(span));
        if (value < 0)
            value = ht_table_find(&index->values, index->value_name.data, base,
                                  ht_hash(hash_key, name, ht_span_length(span)), name, ht_span_length(span));
        if (value >= 0 && value < count)
            values[value] = (int32_t)other;
    }
}

/* ---- fields of the graph ---------------------------------------------------------------------------------- */

enum { NODE = 1, INITIALIZER = 5, INPUT = 11 };

/* Whether a string is "ai.onnx", which inference does not accept as another name of the empty domain. */
static bool is_alias(const ht_field *field)
{
    static const char alias[] = "ai.onnx";
    return field->end - field->begin == sizeof alias - 1 && memcmp(field->begin, alias, sizeof alias - 1) == 0;
}

/* Writes a node with renamed values, without its documentation, metadata and, unless `needs_name`, its name. */
static bool put_node(const writer *w, const uint8_t *body, const uint8_t *end, const int32_t *inputs,
                     const int32_t *outputs, bool needs_name)
{
    enum { IN = 1, OUT = 2, NAME = 3, DOC = 6, DOMAIN_ = 7, METADATA = 9 };
    ht_cursor cursor = {body, end};
    ht_field field;
    int64_t begin;
    bool done = begin_message(w->out, NODE, &begin);
    while (done && cursor.at < cursor.end) {
        (void)ht_next(&cursor, &field); /* cannot fail: the index has read it */
        if (field.number == IN)
            done = put_name(w, IN, *inputs++);
        else if (field.number == OUT)
            done = put_name(w, OUT, *outputs++);
        else if (field.number == DOMAIN_ && is_alias(&field))
            continue;
        else if (field.number != DOC && field.number != METADATA && (needs_name || field.number != NAME))
            done = put(w->out, field.start, field.end - field.start);
    }
    return done && end_message(w->out, begin);
}

static bool put_vertex(const writer *w, int64_t node)
{
    const ht_index *index = w->index;
    const int32_t *outputs = index->outputs.data + index->output_indptr.data[node];
    const int32_t *last = index->outputs.data + index->output_indptr.data[node + 1];
    bool has_output = false;
    for (const int32_t *output = outputs; output < last; output++)
        has_output |= *output >= 0;
    return put_node(w, w->base + index->node_start.data[node] + index->node_header.data[node],
                    w->base + index->node_end.data[node], index->inputs.data + index->input_indptr.data[node], outputs,
                    !has_output);
}

static bool put_initializer(const writer *w, int64_t constant)
{
    enum { NAME = 8, DOC = 12, METADATA = 16 };
    const ht_index *index = w->index;
    ht_cursor cursor = {w->base + index->constant_begin.data[constant], w->base + index->constant_until.data[constant]};
    ht_field field;
    int64_t begin;
    bool done = begin_message(w->out, INITIALIZER, &begin) && put_name(w, NAME, index->constant_value.data[constant]);
    while (done && cursor.at < cursor.end) {
        (void)ht_next(&cursor, &field); /* cannot fail: the index has read it */
        if (field.number != NAME && field.number != DOC && field.number != METADATA)
            done = put(w->out, field.start, field.end - field.start);
    }
    return done && end_message(w->out, begin);
}

static bool put_dim(const writer *w, int64_t size, bool hide)
{
    enum { DIM = 1, VALUE = 1, SYMBOL = 2 };
    char symbol[LONGEST_SYMBOL];
    int64_t begin;
    if (!begin_message(w->out, DIM, &begin))
        return false;
    bool done = hide ? put_bytes(w->out, SYMBOL, symbol,
                                 snprintf(symbol, sizeof symbol, "%s%" PRId64, w->choice->hidden, size))
                     : put_number(w->out, VALUE, (uint64_t)size);
    return done && end_message(w->out, begin);
}

/* A graph input with the type of a constant. */
static bool put_constant_input(const writer *w, int64_t constant)
{
    enum { NAME = 1, TYPE = 2, TENSOR = 1, DTYPE = 1, SHAPE = 2 };
    const ht_index *index = w->index;
    int64_t dim = index->constant_dims_indptr.data[constant], dims = index->constant_dims_indptr.data[constant + 1];
    int64_t input, type, tensor, shape;
    bool is_vector = dims - dim == 1;
    bool done = begin_message(w->out, INPUT, &input) && put_name(w, NAME, index->constant_value.data[constant]) &&
                begin_message(w->out, TYPE, &type) && begin_message(w->out, TENSOR, &tensor) &&
                put_number(w->out, DTYPE, (uint64_t)index->constant_dtype.data[constant]) &&
                begin_message(w->out, SHAPE, &shape);
    for (; done && dim < dims; dim++) {
        int64_t size = index->constant_dims.data[dim];
        done = put_dim(w, size, is_vector && size > w->choice->max_vector);
    }
    return done && end_message(w->out, shape) && end_message(w->out, tensor) && end_message(w->out, type) &&
           end_message(w->out, input);
}

static bool put_constants(const writer *w)
{
    const ht_index *index = w->index;
    for (int64_t constant = 0; constant < index->constant_value.count; constant++) {
        uint8_t how = w->choice->constants[constant], source = index->constant_source.data[constant];
        int32_t value = index->constant_value.data[constant];
        /* Before IR version 4 every initializer must also be an input. */
        bool as_input = how == HT_AS_INPUT || (index->ir_version < 4 && source != HT_SOURCE_NODE);
        if (how == HT_AS_IT_IS) {
            if (source == HT_SOURCE_NODE) {
                const uint8_t *end = w->base + index->constant_end.data[constant];
                ht_cursor cursor = {w->base + index->constant_start.data[constant], end};
                ht_field message;
                (void)ht_next(&cursor, &message); /* cannot fail: the index has read it */
                if (!put_node(w, message.begin, end, NULL, &value, false))
                    return false;
            } else if (!put_initializer(w, constant)) {
                return false;
            }
        }
        if (as_input && !(index->value_defined.data[value] & HT_IS_INPUT) && !put_constant_input(w, constant))
            return false;
    }
    return true;
}

static bool put_info(const writer *w, int64_t info)
{
    enum { NAME = 1, TYPE = 2 };
    const ht_index *index = w->index;
    int64_t type = index->info_type_begin.data[info], begin;
    return begin_message(w->out, index->info_section.data[info], &begin) &&
           put_name(w, NAME, index->info_value.data[info]) &&
           (type == 0 || put_bytes(w->out, TYPE, w->base + type, index->info_type_end.data[info] - type)) &&
           end_message(w->out, begin);
}

bool ht_skeleton_write(const uint8_t *base, const ht_index *index, const ht_skeleton_choice *choice, ht_u8s *out)
{
    const writer w = {base, index, choice, out};
    if (!put_constants(&w)) /* Constant nodes precede their readers */
        return false;
    for (int64_t node = 0; node < index->node_op.count; node++)
        if (!put_vertex(&w, node))
            return false;
    for (int64_t info = 0; info < index->info_value.count; info++)
        if (choice->infos[info] && !put_info(&w, info))
            return false;
    return true;
}
