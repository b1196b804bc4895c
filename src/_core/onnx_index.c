#include "onnx_builder.h"

#include <inttypes.h>

#define NO_MEMORY(builder) ht_fail_memory((builder)->error)

static bool next_field(ht_builder *builder, ht_cursor *cursor, ht_field *field)
{
    const char *trouble = ht_next(cursor, field);
    return trouble == NULL || ht_fail(builder->error, HT_OFFSET(builder, cursor->at), "%s", trouble);
}

static bool expect(ht_builder *builder, const ht_field *field, uint32_t wire)
{
    return ht_expect_wire(builder->base, field, wire, builder->error);
}

/* A string field as a span; its bytes must be UTF-8 if it is to be a name. */
static bool read_string(ht_builder *builder, const ht_field *field, bool is_name, ht_span *span)
{
    if (!expect(builder, field, HT_LEN))
        return false;
    int64_t offset = HT_OFFSET(builder, field->begin), length = field->end - field->begin;
    if (length > HT_MAX_NAME)
        return ht_fail(builder->error, offset, "a string has more than %d bytes", HT_MAX_NAME);
    if (is_name && !ht_is_utf8(field->begin, length))
        return ht_fail(builder->error, offset, "a name is not UTF-8");
    *span = length == 0 ? 0 : ht_make_span(offset, length);
    return true;
}

/* The hash of a name, which the scout has usually computed already. */
static uint64_t hash_of(const ht_builder *builder, const uint8_t *begin, int64_t offset, int64_t length)
{
    const ht_hashed *hashed = &builder->hashed[offset % HT_HASHED];
    if (hashed->span == ht_make_span(offset, length))
        return hashed->hash;
    return ht_hash(builder->key, begin, length);
}

bool ht_value(ht_builder *builder, const uint8_t *begin, const uint8_t *end, int32_t *value, bool *fresh)
{
    ht_index *index = builder->index;
    int64_t offset = HT_OFFSET(builder, begin), length = end - begin;
    if (length > HT_MAX_NAME)
        return ht_fail(builder->error, offset, "a name has more than %d bytes", HT_MAX_NAME);
    *value = ht_intern(&index->values, &index->value_name, hash_of(builder, begin, offset, length), builder->base,
                       offset, length, fresh);
    if (*value < 0)
        return NO_MEMORY(builder);
    if (!*fresh)
        return true;
    if (!ht_is_utf8(begin, length))
        return ht_fail(builder->error, offset, "a name is not UTF-8");
    return ht_push_u8(&index->value_defined, 0) || NO_MEMORY(builder);
}

/* The value that a field names, which must be a non-empty string, now defined as `kind`. Only an input and an
 * initializer may share a name. */
static bool define(ht_builder *builder, const uint8_t *begin, const uint8_t *end, uint8_t kind, int32_t *value,
                   bool *fresh)
{
    if (!ht_value(builder, begin, end, value, fresh))
        return false;
    uint8_t *defined = &builder->index->value_defined.data[*value], others = *defined & ~HT_IS_OUTPUT;
    if (others != 0 && (others & kind || (others | kind) != (HT_IS_INPUT | HT_IS_INITIALIZER)))
        return ht_fail_about(builder->error, HT_OFFSET(builder, begin), HT_OFFSET(builder, begin), end - begin,
                             "a value is defined twice");
    *defined |= kind;
    return true;
}

/* ---- nodes ------------------------------------------------------------------------------------------------ */

bool ht_read_attribute(ht_builder *builder, const ht_field *message, ht_attribute *attribute)
{
    enum { NAME = 1, F = 2, I = 3, S = 4, T = 5, G = 6, FLOATS = 7, INTS = 8, STRINGS = 9, TENSORS = 10, GRAPHS = 11,
           TP = 14, TYPE_PROTOS = 15, TYPE = 20, REF_ATTR_NAME = 21, SPARSE_TENSOR = 22, SPARSE_TENSORS = 23,
           LAST = SPARSE_TENSORS, LAST_TYPE = 14 };
    /* Wire type of the fields that hold a value, + 1. */
    static const uint8_t wire[LAST + 1] = {
        [F] = HT_FIXED32 + 1, [I] = HT_VARINT + 1, [S] = HT_LEN + 1, [T] = HT_LEN + 1, [G] = HT_LEN + 1,
        [FLOATS] = HT_FIXED32 + 1, [INTS] = HT_VARINT + 1, [STRINGS] = HT_LEN + 1, [TENSORS] = HT_LEN + 1,
        [GRAPHS] = HT_LEN + 1, [TP] = HT_LEN + 1, [TYPE_PROTOS] = HT_LEN + 1, [SPARSE_TENSOR] = HT_LEN + 1,
        [SPARSE_TENSORS] = HT_LEN + 1,
    };
    static const uint8_t field_of_type[LAST_TYPE + 1] = {
        0, F, I, S, T, G, FLOATS, INTS, STRINGS, TENSORS, GRAPHS, SPARSE_TENSOR, SPARSE_TENSORS, TP, TYPE_PROTOS,
    };
    const uint32_t singular_messages = 1u << T | 1u << G | 1u << TP | 1u << SPARSE_TENSOR;
    ht_cursor cursor = {message->begin, message->end};
    uint32_t present = 0;
    uint64_t type = 0;
    ht_field field;
    *attribute = (ht_attribute){0};

    if (!expect(builder, message, HT_LEN))
        return false;
    while (cursor.at < cursor.end) {
        if (!next_field(builder, &cursor, &field))
            return false;
        if (field.number > LAST)
            continue;
        if (wire[field.number] != 0) {
            int64_t offset = HT_OFFSET(builder, field.start), more = 1;
            bool packed = (field.number == FLOATS || field.number == INTS) && field.wire == HT_LEN;
            if (!packed && !expect(builder, &field, wire[field.number] - 1u))
                return false;
            if (packed) {
                int64_t size = field.end - field.begin;
                more = field.number == INTS ? ht_count_varints(field.begin, field.end) : size % 4 == 0 ? size / 4 : -1;
                if (more < 0)
                    return ht_fail(builder->error, offset, "packed data of an attribute are malformed");
            }
            if (present & singular_messages & 1u << field.number)
                return ht_fail(builder->error, offset, "field %" PRIu32 " of an attribute is given twice", field.number);
            present |= 1u << field.number;
            attribute->data = field;
            attribute->count += more;
            if (field.number == G || field.number == GRAPHS) {
                ht_i64s *pending = &builder->scopes.pending;
                if (!ht_push_i64(pending, HT_OFFSET(builder, field.begin)) ||
                    !ht_push_i64(pending, HT_OFFSET(builder, field.end)) || !ht_push_i64(pending, -1))
                    return NO_MEMORY(builder);
            }
        } else if (field.number == NAME) {
            if (!expect(builder, &field, HT_LEN))
                return false;
            attribute->name = field.begin;
            attribute->name_end = field.end;
        } else if (field.number == TYPE) {
            if (!expect(builder, &field, HT_VARINT))
                return false;
            type = field.value;
        } else if (field.number == REF_ATTR_NAME && field.end > field.begin) {
            return ht_fail(builder->error, HT_OFFSET(builder, field.start),
                           "an attribute refers to a function's attribute, but stands outside of functions");
        }
    }
    int64_t offset = HT_OFFSET(builder, message->start);
    if (attribute->name == attribute->name_end)
        return ht_fail(builder->error, offset, "an attribute has no name");
    if (type > LAST_TYPE)
        return ht_fail(builder->error, offset, "an attribute has the unknown type %" PRIu64, type);
    if (type != 0 ? (present & ~(1u << field_of_type[type])) != 0 : (present & (present - 1)) != 0)
        return ht_fail_about(builder->error, offset, HT_OFFSET(builder, attribute->name),
                             attribute->name_end - attribute->name, "an attribute carries data of another type than it states");
    return true;
}

/* Number of a (domain, op type) pair. */
static bool op_of(ht_builder *builder, ht_span op_type, ht_span domain, int32_t *op)
{
    ht_index *index = builder->index;
    ht_span spans[2] = {op_type, domain};
    int32_t pair[2] = {0, -1};
    bool fresh;
    for (int i = 0; i < 2; i++)
        if (spans[i] != 0) {
            int64_t offset = ht_span_offset(spans[i]), length = ht_span_length(spans[i]);
            pair[i] = ht_intern(&builder->text_table, &builder->texts,
                                ht_hash(builder->key, builder->base + offset, length), builder->base, offset, length,
                                &fresh);
            if (pair[i] < 0)
                return NO_MEMORY(builder);
        }
    uint64_t hash = ht_hash(builder->key, (const uint8_t *)pair, sizeof pair);
    *op = ht_table_find(&builder->op_table, builder->op_spans.data, (const uint8_t *)builder->op_texts.data, hash,
                        (const uint8_t *)pair, sizeof pair);
    if (*op >= 0)
        return true;
    *op = (int32_t)index->op_type.count;
    return (ht_push_i32(&builder->op_texts, pair[0]) && ht_push_i32(&builder->op_texts, pair[1]) &&
            ht_push_i64(&builder->op_spans, ht_make_span(*op * (int64_t)sizeof pair, sizeof pair)) &&
            ht_table_add(&builder->op_table, hash, *op) && ht_push_i64(&index->op_type, op_type) &&
            ht_push_i64(&index->op_domain, domain)) ||
           NO_MEMORY(builder);
}

/* Appends a constant whose message has been read; its dims are already in constant_dims. */
static bool add_constant(ht_builder *builder, const ht_field *field, int32_t value, uint8_t source,
                         const uint8_t *begin, const uint8_t *end, const ht_tensor *tensor, ht_span node_name)
{
    ht_index *index = builder->index;
    if (index->constant_dims.count > INT32_MAX)
        return ht_fail(builder->error, HT_OFFSET(builder, begin), "the constants have more than 2^31 - 1 dims in all");
    return (ht_push_i32(&index->constant_value, value) && ht_push_u8(&index->constant_source, source) &&
            ht_push_i64(&index->constant_start, HT_OFFSET(builder, field->start)) &&
            ht_push_i64(&index->constant_end, HT_OFFSET(builder, field->end)) &&
            ht_push_u8(&index->constant_kind, (uint8_t)tensor->kind) &&
            ht_push_i32(&index->constant_dtype, tensor->dtype) &&
            ht_push_i64(&index->constant_begin, HT_OFFSET(builder, begin)) &&
            ht_push_i64(&index->constant_until, HT_OFFSET(builder, end)) &&
            ht_push_i64(&index->constant_data_begin, tensor->data_begin) &&
            ht_push_i64(&index->constant_data_end, tensor->data_end) &&
            ht_push_i32(&index->constant_dims_indptr, (int32_t)index->constant_dims.count) &&
            ht_push_i64(&index->constant_node_name, node_name)) ||
           NO_MEMORY(builder);
}

/* The tensor that an attribute of a Constant node stands for. `body`: the AttributeProto. */
static bool read_constant_attribute(ht_builder *builder, const ht_field *body, const ht_attribute *attribute,
                                    const uint8_t **begin, const uint8_t **end, ht_tensor *tensor)
{
    static const struct {
        const char *name;
        uint8_t field, dtype;
        bool list;
    } forms[] = {
        {"value", 5, 0, false},       {"sparse_value", 22, 0, false}, {"value_float", 2, 1, false},
        {"value_floats", 7, 1, true}, {"value_int", 3, 7, false},     {"value_ints", 8, 7, true},
        {"value_string", 4, 8, false}, {"value_strings", 9, 8, true},
    };
    ht_index *index = builder->index;
    size_t length = (size_t)(attribute->name_end - attribute->name), i = 0, count = sizeof forms / sizeof *forms;
    while (i < count && (strlen(forms[i].name) != length || memcmp(forms[i].name, attribute->name, length) != 0))
        i++;
    /* An empty list and a zero may be written as no field at all; a tensor may not. */
    if (i == count || (attribute->data.number != forms[i].field && (attribute->data.number != 0 || i < 2)))
        return ht_fail_about(builder->error, HT_OFFSET(builder, body->start), HT_OFFSET(builder, attribute->name),
                             (int64_t)length, "the attribute of a Constant node is unknown or of the wrong type");
    if (i < 2) {
        *begin = attribute->data.begin;
        *end = attribute->data.end;
        ht_cursor cursor = {*begin, *end};
        return (i == 0 ? ht_read_tensor : ht_read_sparse_tensor)(builder->base, cursor, &index->constant_dims, tensor,
                                                                 builder->error);
    }
    *begin = body->begin;
    *end = body->end;
    *tensor = (ht_tensor){.dtype = forms[i].dtype, .kind = HT_DATA_ATTRIBUTE, .elements = 1};
    return !forms[i].list || ht_push_i64(&index->constant_dims, attribute->count) || NO_MEMORY(builder);
}

/* metadata_props of a vertex: keeps "affinity" and "layer_ann". */
static bool read_metadata(ht_builder *builder, const ht_field *message, int32_t node)
{
    enum { KEY = 1, VALUE = 2 };
    static const char *const keys[2] = {"affinity", "layer_ann"};
    ht_index *index = builder->index;
    ht_cursor cursor = {message->begin, message->end};
    ht_span key = 0, value = 0;
    ht_field field;
    if (!expect(builder, message, HT_LEN))
        return false;
    while (cursor.at < cursor.end)
        if (!next_field(builder, &cursor, &field) ||
            (field.number == KEY && !read_string(builder, &field, false, &key)) ||
            (field.number == VALUE && !read_string(builder, &field, true, &value)))
            return false;
    for (uint8_t kind = 0; kind < 2; kind++)
        if (key != 0 && ht_span_length(key) == (int64_t)strlen(keys[kind]) &&
            memcmp(builder->base + ht_span_offset(key), keys[kind], strlen(keys[kind])) == 0)
            return (ht_push_i32(&index->affinity_node, node) && ht_push_u8(&index->affinity_kind, kind) &&
                    ht_push_i64(&index->affinity_value, value) &&
                    ht_push_i64(&index->affinity_start, HT_OFFSET(builder, message->start)) &&
                    ht_push_i64(&index->affinity_end, HT_OFFSET(builder, message->end))) ||
                   NO_MEMORY(builder);
    return true;
}

static bool add_node(ht_builder *builder, const ht_field *message)
{
    enum { INPUT = 1, OUTPUT = 2, NAME = 3, OP_TYPE = 4, ATTRIBUTE = 5, DOMAIN_ = 7, METADATA = 9 };
    ht_index *index = builder->index;
    ht_cursor cursor = {message->begin, message->end};
    int32_t node = (int32_t)index->node_op.count, value;
    int64_t first_input = index->inputs.count, first_output = index->outputs.count;
    int64_t first_affinity = index->affinity_node.count;
    ht_span name = 0, op_type = 0, domain = 0;
    ht_attribute attribute = {0};
    ht_field field, attribute_field = {0};
    int64_t attributes = 0, named_outputs = 0;
    bool fresh, constant_was_used = false;

    while (cursor.at < cursor.end) {
        if (!next_field(builder, &cursor, &field))
            return false;
        switch (field.number) {
        case INPUT:
            value = -1;
            if (!expect(builder, &field, HT_LEN))
                return false;
            if (field.end > field.begin && !ht_value(builder, field.begin, field.end, &value, &fresh))
                return false;
            if (!ht_push_i32(&index->inputs, value))
                return NO_MEMORY(builder);
            break;
        case OUTPUT:
            value = -1;
            if (!expect(builder, &field, HT_LEN))
                return false;
            if (field.end > field.begin) {
                if (!define(builder, field.begin, field.end, HT_IS_NODE_OUTPUT, &value, &fresh))
                    return false;
                constant_was_used = !fresh;
                named_outputs++;
            }
            if (!ht_push_i32(&index->outputs, value))
                return NO_MEMORY(builder);
            break;
        case NAME:
            if (!read_string(builder, &field, true, &name))
                return false;
            break;
        case OP_TYPE:
            if (!read_string(builder, &field, true, &op_type))
                return false;
            break;
        case DOMAIN_:
            if (!read_string(builder, &field, true, &domain))
                return false;
            break;
        case ATTRIBUTE:
            if (!ht_read_attribute(builder, &field, &attribute))
                return false;
            attribute_field = field;
            attributes++;
            break;
        case METADATA:
            if (!read_metadata(builder, &field, node))
                return false;
            break;
        default:
            break;
        }
    }
    int64_t offset = HT_OFFSET(builder, message->start);
    if (op_type == 0)
        return ht_fail(builder->error, offset, "the node has no op_type");
    if (ht_span_length(domain) == 7 && memcmp(builder->base + ht_span_offset(domain), "ai.onnx", 7) == 0)
        domain = 0;

    if (domain == 0 && ht_span_length(op_type) == 8 &&
        memcmp(builder->base + ht_span_offset(op_type), "Constant", 8) == 0) {
        const uint8_t *begin = NULL, *end = NULL;
        ht_tensor tensor;
        if (index->inputs.count != first_input || index->outputs.count != first_output + 1 || named_outputs != 1 ||
            attributes != 1)
            return ht_fail(builder->error, offset, "a Constant node needs no input, one output and one attribute");
        if (!read_constant_attribute(builder, &attribute_field, &attribute, &begin, &end, &tensor))
            return false;
        value = index->outputs.data[first_output];
        index->value_defined.data[value] ^= HT_IS_NODE_OUTPUT | HT_IS_CONSTANT_OUTPUT;
        index->outputs.count = first_output;
        index->affinity_node.count = index->affinity_kind.count = first_affinity;
        index->affinity_value.count = index->affinity_start.count = index->affinity_end.count = first_affinity;
        builder->constant_after_use |= constant_was_used;
        return add_constant(builder, message, value, HT_SOURCE_NODE, begin, end, &tensor, name);
    }
    if (named_outputs == 0 && name == 0)
        return ht_fail(builder->error, offset, "the node has neither a name nor an output");
    if (builder->scopes.pending.count > 0 && !ht_capture(builder, node))
        return false;
    if (node == INT32_MAX - 1 || index->inputs.count > INT32_MAX || index->outputs.count > INT32_MAX ||
        index->captures.count > INT32_MAX)
        return ht_fail(builder->error, offset, "more than 2^31 - 1 nodes, inputs or outputs");
    int32_t op = -1;
    if (!op_of(builder, op_type, domain, &op))
        return false;
    return (ht_push_i64(&index->node_start, offset) &&
            ht_push_i64(&index->node_end, HT_OFFSET(builder, message->end)) &&
            ht_push_u8(&index->node_header, (uint8_t)(message->begin - message->start)) &&
            ht_push_i64(&index->node_name, name) && ht_push_i32(&index->node_op, op) &&
            ht_push_i32(&index->input_indptr, (int32_t)index->inputs.count) &&
            ht_push_i32(&index->output_indptr, (int32_t)index->outputs.count) &&
            ht_push_i32(&index->capture_indptr, (int32_t)index->captures.count)) ||
           NO_MEMORY(builder);
}

/* ---- scout ------------------------------------------------------------------------------------------------ */

/* Looking names up in a table of millions costs three cache misses each: the slot, the span, the bytes to compare
 * with. The scout runs some fields ahead of the pass and has the memory fetched, so that the misses overlap. It only
 * gives hints: what it finds malformed it leaves to the pass. Halves the time of a million nodes. */
enum { SCOUT_FIELDS = 24, SCOUT_RING = 32, SCOUT_SPAN = 12, SCOUT_BYTES = 24 };

typedef struct {
    ht_cursor ahead;
    struct {
        uint64_t hash;
        int32_t guess; /* which value it may be */
    } ring[SCOUT_RING]; /* the names met last */
    uint32_t met;
} ht_scout;

static void scout_name(ht_builder *builder, ht_scout *scout, const ht_field *name)
{
    const ht_index *index = builder->index;
    int64_t offset = HT_OFFSET(builder, name->begin), length = name->end - name->begin;
    if (length > HT_MAX_NAME || index->values.slots == NULL)
        return;
    uint64_t hash = ht_hash(builder->key, name->begin, length);
    builder->hashed[offset % HT_HASHED] = (ht_hashed){ht_make_span(offset, length), hash};
    __builtin_prefetch(&index->values.slots[(uint32_t)hash & index->values.mask]);
    uint32_t met = scout->met++;
    scout->ring[met % SCOUT_RING].hash = hash;
    if (met < SCOUT_BYTES)
        return;
    uint32_t at = (met - SCOUT_SPAN) % SCOUT_RING;
    scout->ring[at].guess = ht_table_guess(&index->values, scout->ring[at].hash);
    if (scout->ring[at].guess >= 0)
        __builtin_prefetch(&index->value_name.data[scout->ring[at].guess]);
    at = (met - SCOUT_BYTES) % SCOUT_RING;
    if (met >= SCOUT_SPAN + SCOUT_BYTES && scout->ring[at].guess >= 0) {
        ht_span span = index->value_name.data[scout->ring[at].guess];
        __builtin_prefetch(builder->base + ht_span_offset(span));
        __builtin_prefetch(builder->base + ht_span_offset(span) + ht_span_length(span));
    }
}

static void scout_field(ht_builder *builder, ht_scout *scout)
{
    enum { NODE = 1, INITIALIZER = 5, TENSOR_NAME = 8 };
    ht_field field, inner;
    if (scout->ahead.at >= scout->ahead.end || ht_next(&scout->ahead, &field) != NULL)
        return;
    if (field.wire != HT_LEN || (field.number != NODE && field.number != INITIALIZER))
        return;
    for (ht_cursor cursor = {field.begin, field.end}; cursor.at < cursor.end && ht_next(&cursor, &inner) == NULL;) {
        bool is_name = field.number == NODE ? inner.number <= 2 : inner.number == TENSOR_NAME;
        if (is_name && inner.wire == HT_LEN)
            scout_name(builder, scout, &inner);
        else if (field.number == INITIALIZER && inner.number > TENSOR_NAME)
            break;
    }
}

/* ---- graph ------------------------------------------------------------------------------------------------ */

static bool add_initializer(ht_builder *builder, const ht_field *message, bool sparse)
{
    ht_index *index = builder->index;
    ht_cursor cursor = {message->begin, message->end};
    ht_tensor tensor;
    int32_t value;
    bool fresh;
    if (!(sparse ? ht_read_sparse_tensor : ht_read_tensor)(builder->base, cursor, &index->constant_dims, &tensor,
                                                           builder->error))
        return false;
    if (tensor.name_length == 0)
        return ht_fail(builder->error, HT_OFFSET(builder, message->start), "the initializer has no name");
    const uint8_t *name = builder->base + tensor.name_offset;
    return define(builder, name, name + tensor.name_length, HT_IS_INITIALIZER, &value, &fresh) &&
           add_constant(builder, message, value, sparse ? HT_SOURCE_SPARSE_INITIALIZER : HT_SOURCE_INITIALIZER,
                        message->begin, message->end, &tensor, 0);
}

/* A ValueInfoProto. Inputs (section 11) define their name, outputs (12) read it; value infos (13) do neither. */
static bool add_info(ht_builder *builder, const ht_field *message, uint8_t section)
{
    enum { NAME = 1, TYPE = 2 };
    ht_index *index = builder->index;
    ht_cursor cursor = {message->begin, message->end};
    int64_t offset = HT_OFFSET(builder, message->start);
    ht_field field, name = {0}, type = {0};
    int32_t value = -1;
    bool fresh;
    while (cursor.at < cursor.end) {
        if (!next_field(builder, &cursor, &field))
            return false;
        if (field.number == NAME) {
            if (!expect(builder, &field, HT_LEN))
                return false;
            name = field;
        } else if (field.number == TYPE) {
            if (!expect(builder, &field, HT_LEN))
                return false;
            if (type.begin != NULL)
                return ht_fail(builder->error, HT_OFFSET(builder, field.start), "the type is given twice");
            type = field;
        }
    }
    if (name.begin == name.end)
        return ht_fail(builder->error, offset, "the value has no name");
    ht_span span;
    if (!read_string(builder, &name, true, &span))
        return false;
    if (section == 11 && !define(builder, name.begin, name.end, HT_IS_INPUT, &value, &fresh))
        return false;
    if (section == 12) {
        if (!ht_value(builder, name.begin, name.end, &value, &fresh))
            return false;
        if (index->value_defined.data[value] & HT_IS_OUTPUT)
            return ht_fail(builder->error, offset, "the graph output is listed twice");
        index->value_defined.data[value] |= HT_IS_OUTPUT;
    }
    if (index->info_value.count == INT32_MAX)
        return ht_fail(builder->error, offset, "more than 2^31 - 1 inputs, outputs and value infos");
    return (ht_push_u8(&index->info_section, section) && ht_push_i32(&index->info_value, value) &&
            ht_push_i64(&builder->info_name, span) && ht_push_i64(&index->info_start, offset) &&
            ht_push_i64(&index->info_end, HT_OFFSET(builder, message->end)) &&
            ht_push_i64(&index->info_type_begin, type.begin ? HT_OFFSET(builder, type.begin) : 0) &&
            ht_push_i64(&index->info_type_end, type.begin ? HT_OFFSET(builder, type.end) : 0)) ||
           NO_MEMORY(builder);
}

/* Appends [start, end) to a list of ranges, joining it with the last one if they touch. */
static bool add_range(ht_builder *builder, ht_i64s *starts, ht_i64s *ends, const ht_field *field)
{
    int64_t start = HT_OFFSET(builder, field->start), end = HT_OFFSET(builder, field->end);
    if (ends->count > 0 && ends->data[ends->count - 1] == start) {
        ends->data[ends->count - 1] = end;
        return true;
    }
    return (ht_push_i64(starts, start) && ht_push_i64(ends, end)) || NO_MEMORY(builder);
}

static bool add_graph(ht_builder *builder, const ht_field *message)
{
    enum { NODE = 1, NAME = 2, INITIALIZER = 5, INPUT = 11, OUTPUT = 12, INFO = 13, SPARSE = 15 };
    ht_index *index = builder->index;
    ht_cursor cursor = {message->begin, message->end};
    ht_scout scout = {.ahead = cursor};
    ht_field field;
    for (int i = 0; i < SCOUT_FIELDS; i++)
        scout_field(builder, &scout);
    while (cursor.at < cursor.end) {
        bool done = true;
        ht_place place = HT_PLACE_GRAPH;
        int64_t ordinal = -1;
        scout_field(builder, &scout);
        if (!next_field(builder, &cursor, &field))
            return ht_in_place(builder->error, HT_PLACE_GRAPH, 0, 0, -1);
        bool message_field = field.number == NODE || field.number == INITIALIZER || field.number == SPARSE ||
                             (field.number >= INPUT && field.number <= INFO);
        if (message_field && !expect(builder, &field, HT_LEN))
            return ht_in_place(builder->error, HT_PLACE_GRAPH, 0, 0, -1);
        switch (field.number) {
        case NODE:
            place = HT_PLACE_NODE;
            ordinal = builder->nodes++;
            done = add_node(builder, &field);
            break;
        case INITIALIZER:
            place = HT_PLACE_INITIALIZER;
            ordinal = builder->initializers++;
            done = add_initializer(builder, &field, false);
            break;
        case SPARSE:
            place = HT_PLACE_SPARSE_INITIALIZER;
            ordinal = builder->sparse_initializers++;
            done = add_initializer(builder, &field, true);
            break;
        case INPUT:
        case OUTPUT:
        case INFO:
            place = (ht_place)(HT_PLACE_INPUT + (field.number - INPUT));
            ordinal = builder->infos[field.number - INPUT]++;
            done = add_info(builder, &field, (uint8_t)field.number);
            break;
        case NAME:
            done = read_string(builder, &field, true, &index->graph_name);
            break;
        default:
            done = add_range(builder, &index->rest_start, &index->rest_end, &field);
            break;
        }
        if (!done)
            return ht_in_place(builder->error, place, message_field ? HT_OFFSET(builder, field.begin) : 0,
                               message_field ? HT_OFFSET(builder, field.end) : 0, ordinal);
    }
    return true;
}

/* ---- model ------------------------------------------------------------------------------------------------ */

static bool add_opset(ht_builder *builder, const ht_field *message)
{
    enum { DOMAIN_ = 1, VERSION = 2 };
    ht_cursor cursor = {message->begin, message->end};
    ht_span domain = 0;
    int64_t version = 0;
    ht_field field;
    while (cursor.at < cursor.end) {
        if (!next_field(builder, &cursor, &field))
            return false;
        if (field.number == DOMAIN_ && !read_string(builder, &field, true, &domain))
            return false;
        if (field.number == VERSION) {
            if (!expect(builder, &field, HT_VARINT))
                return false;
            version = (int64_t)field.value;
        }
    }
    return (ht_push_i64(&builder->index->opset_domain, domain) &&
            ht_push_i64(&builder->index->opset_version, version)) ||
           NO_MEMORY(builder);
}

static bool add_function(ht_builder *builder, const ht_field *message)
{
    enum { NAME = 1, DOMAIN_ = 10, OVERLOAD = 13 };
    ht_index *index = builder->index;
    ht_cursor cursor = {message->begin, message->end};
    ht_span name = 0, domain = 0, overload = 0;
    ht_field field;
    while (cursor.at < cursor.end)
        if (!next_field(builder, &cursor, &field) ||
            (field.number == NAME && !read_string(builder, &field, true, &name)) ||
            (field.number == DOMAIN_ && !read_string(builder, &field, true, &domain)) ||
            (field.number == OVERLOAD && !read_string(builder, &field, true, &overload)))
            return false;
    if (name == 0)
        return ht_fail(builder->error, HT_OFFSET(builder, message->start), "the function has no name");
    return (ht_push_i64(&index->function_name, name) && ht_push_i64(&index->function_domain, domain) &&
            ht_push_i64(&index->function_overload, overload) &&
            ht_push_i64(&index->function_begin, HT_OFFSET(builder, message->begin)) &&
            ht_push_i64(&index->function_end, HT_OFFSET(builder, message->end))) ||
           NO_MEMORY(builder);
}

static bool add_model(ht_builder *builder, ht_cursor cursor)
{
    enum { IR_VERSION = 1, GRAPH = 7, OPSET = 8, TRAINING = 20, FUNCTION = 25 };
    ht_index *index = builder->index;
    bool has_graph = false;
    ht_field field;
    while (cursor.at < cursor.end) {
        bool done = true;
        ht_place place = HT_PLACE_MODEL;
        int64_t ordinal = -1;
        if (!next_field(builder, &cursor, &field))
            return ht_in_place(builder->error, HT_PLACE_MODEL, 0, 0, -1);
        bool message_field = field.number == GRAPH || field.number == OPSET || field.number == FUNCTION;
        if ((message_field && !expect(builder, &field, HT_LEN)) ||
            (field.number == IR_VERSION && !expect(builder, &field, HT_VARINT)))
            return ht_in_place(builder->error, HT_PLACE_MODEL, 0, 0, -1);
        if (field.number == GRAPH) {
            if (has_graph) {
                ht_fail(builder->error, HT_OFFSET(builder, field.start), "the graph is given twice");
                return ht_in_place(builder->error, HT_PLACE_MODEL, 0, 0, -1);
            }
            has_graph = true;
            if (!add_graph(builder, &field))
                return false;
            continue;
        }
        if (field.number == IR_VERSION)
            index->ir_version = (int64_t)field.value;
        if (field.number == OPSET) {
            place = HT_PLACE_OPSET;
            ordinal = builder->opsets++;
            done = add_opset(builder, &field);
        } else if (field.number == FUNCTION) {
            place = HT_PLACE_FUNCTION;
            ordinal = builder->functions++;
            done = add_function(builder, &field);
        }
        if (done && field.number != TRAINING)
            done = add_range(builder, &index->header_start, &index->header_end, &field);
        if (!done)
            return ht_in_place(builder->error, place, message_field ? HT_OFFSET(builder, field.begin) : 0,
                               message_field ? HT_OFFSET(builder, field.end) : 0, ordinal);
    }
    if (!has_graph) {
        ht_fail(builder->error, -1, "there is no graph");
        return ht_in_place(builder->error, HT_PLACE_MODEL, 0, 0, -1);
    }
    return true;
}

/* ---- after the pass --------------------------------------------------------------------------------------- */

/* Which value each value info is about, and each value's info: inputs before outputs before value infos, the first
 * of each; infos without a type do not count. */
static bool resolve_infos(ht_builder *builder)
{
    ht_index *index = builder->index;
    if (!ht_resize_i32(&index->value_info, index->value_name.count))
        return NO_MEMORY(builder);
    for (int64_t value = 0; value < index->value_info.count; value++)
        index->value_info.data[value] = -1;
    for (uint8_t section = 11; section <= 13; section++)
        for (int64_t info = 0; info < index->info_value.count; info++) {
            if (index->info_section.data[info] != section)
                continue;
            int32_t *value = &index->info_value.data[info];
            if (section == 13) {
                ht_span span = builder->info_name.data[info];
                const uint8_t *name = builder->base + ht_span_offset(span);
                *value = ht_table_find(&index->values, index->value_name.data, builder->base,
                                       ht_hash(builder->key, name, ht_span_length(span)), name, ht_span_length(span));
            }
            if (*value >= 0 && index->info_type_end.data[info] != 0 && index->value_info.data[*value] < 0)
                index->value_info.data[*value] = (int32_t)info;
        }
    return true;
}

/* The vertex whose row of a CSR list holds position `at`. */
static int32_t row_of(const ht_i32s *indptr, int64_t at)
{
    int64_t low = 0, high = indptr->count - 1; /* indptr[low] <= at < indptr[high] */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (indptr->data[middle] <= at)
            low = middle;
        else
            high = middle;
    }
    return (int32_t)low;
}

/* Everything read is defined. */
static bool check_defined(ht_builder *builder)
{
    ht_index *index = builder->index;
    int64_t missing = 0;
    while (missing < index->value_defined.count && (index->value_defined.data[missing] & ~HT_IS_OUTPUT) != 0)
        missing++;
    if (missing == index->value_defined.count)
        return true;
    ht_span name = index->value_name.data[missing];
    bool is_output = index->value_defined.data[missing] & HT_IS_OUTPUT;
    ht_fail_about(builder->error, ht_span_offset(name), ht_span_offset(name), ht_span_length(name),
                  is_output ? "nothing produces a graph output" : "nothing produces a value that is read");
    const ht_i32s *lists[2] = {&index->inputs, &index->captures};
    const ht_i32s *indptrs[2] = {&index->input_indptr, &index->capture_indptr};
    for (int i = 0; i < 2; i++)
        for (int64_t at = 0; at < lists[i]->count; at++)
            if (lists[i]->data[at] == missing) {
                int32_t node = row_of(indptrs[i], at);
                return ht_in_place(builder->error, HT_PLACE_NODE,
                                   index->node_start.data[node] + index->node_header.data[node],
                                   index->node_end.data[node], -1);
            }
    return ht_in_place(builder->error, HT_PLACE_GRAPH, 0, 0, -1);
}

static bool link_constants(ht_builder *builder)
{
    ht_index *index = builder->index;
    if (!ht_resize_i32(&index->value_constant, index->value_name.count))
        return NO_MEMORY(builder);
    for (int64_t value = 0; value < index->value_constant.count; value++)
        index->value_constant.data[value] = -1;
    for (int64_t constant = 0; constant < index->constant_value.count; constant++)
        index->value_constant.data[index->constant_value.data[constant]] = (int32_t)constant;
    return true;
}

static bool find_first_nodes(ht_builder *builder)
{
    ht_index *index = builder->index;
    if (!ht_resize_i32(&index->op_first_node, index->op_type.count))
        return NO_MEMORY(builder);
    for (int64_t node = index->node_op.count - 1; node >= 0; node--)
        index->op_first_node.data[index->node_op.data[node]] = (int32_t)node;
    return true;
}

bool ht_index_build(const uint8_t *data, int64_t size, const uint64_t hash_key[2], ht_index *index, ht_error *error)
{
    *error = (ht_error){.offset = -1};
    if (size <= 0)
        return ht_fail(error, -1, "there are no bytes");
    if (size >= HT_MAX_FILE)
        return ht_fail(error, -1, "files of 512 GiB and more are not supported");
    ht_builder builder = {.base = data, .key = {hash_key[0], hash_key[1]}, .index = index, .error = error};
    bool done = (ht_push_i32(&index->input_indptr, 0) && ht_push_i32(&index->output_indptr, 0) &&
                 ht_push_i32(&index->capture_indptr, 0) && ht_push_i32(&index->constant_dims_indptr, 0)) ||
                ht_fail_memory(error);
    done = done && add_model(&builder, (ht_cursor){data, data + size}) && resolve_infos(&builder) &&
           check_defined(&builder) && link_constants(&builder) && ht_order(&builder) && find_first_nodes(&builder);
    free(builder.texts.data);
    ht_table_free(&builder.text_table);
    free(builder.op_texts.data);
    free(builder.op_spans.data);
    ht_table_free(&builder.op_table);
    free(builder.info_name.data);
    ht_scopes_free(&builder.scopes);
    return done;
}

void ht_index_free(ht_index *index)
{
#define FREE(type, name) free(index->name.data);
    HT_INDEX_ARRAYS(FREE)
#undef FREE
    ht_table_free(&index->values);
    *index = (ht_index){0};
}

bool ht_index_array(const ht_index *index, int number, const char **name, int *size, void **data, int64_t *count)
{
    int current = 0;
#define EXPORT(type, member)                                                                        \
    if (current++ == number) {                                                                      \
        *name = #member;                                                                            \
        *size = (int)sizeof *index->member.data;                                                    \
        *data = index->member.data;                                                                 \
        *count = index->member.count;                                                               \
        return true;                                                                                \
    }
    HT_INDEX_ARRAYS(EXPORT)
#undef EXPORT
    return false;
}

ht_span ht_first_string(const uint8_t *base, int64_t begin, int64_t end, uint32_t number)
{
    ht_field field;
    for (ht_cursor cursor = {base + begin, base + end}; cursor.at < cursor.end && ht_next(&cursor, &field) == NULL;)
        if (field.number == number && field.wire == HT_LEN && field.end > field.begin)
            return ht_make_span(field.begin - base,
                                field.end - field.begin > HT_MAX_NAME ? HT_MAX_NAME : field.end - field.begin);
    return 0;
}
