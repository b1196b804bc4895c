/* One node: attributes one level deep, constants defined by Constant nodes, affinities, inputs and outputs. */
#include "builder.h"

#include <inttypes.h>

#define NO_MEMORY(builder) ht_fail_memory((builder)->error)

bool ht_read_attribute(ht_builder *builder, const ht_field *message, ht_attribute *attribute)
{
    enum { NAME = 1, F = 2, I = 3, S = 4, T = 5, G = 6, FLOATS = 7, INTS = 8, STRINGS = 9, TENSORS = 10, GRAPHS = 11,
           TP = 14, TYPE_PROTOS = 15, TYPE = 20, REF_ATTR_NAME = 21, SPARSE_TENSOR = 22, SPARSE_TENSORS = 23,
           LAST = SPARSE_TENSORS, LAST_TYPE = 14 };
    /* Wire type + 1 of the fields that hold a value. */
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

    if (!ht_expect(builder, message, HT_LEN))
        return false;
    while (cursor.at < cursor.end) {
        if (!ht_next_field(builder, &cursor, &field))
            return false;
        if (field.number > LAST)
            continue;
        if (wire[field.number] != 0) {
            int64_t offset = HT_OFFSET(builder, field.start), more = 1;
            bool packed = (field.number == FLOATS || field.number == INTS) && field.wire == HT_LEN;
            if (!packed && !ht_expect(builder, &field, wire[field.number] - 1u))
                return false;
            if (packed) {
                int64_t size = field.end - field.begin;
                more = field.number == INTS ? ht_count_varints(field.begin, field.end) : size % 4 == 0 ? size / 4 : -1;
                if (more < 0)
                    return ht_fail(builder->error, offset, "packed data of an attribute are malformed");
            }
            if (present & singular_messages & 1u << field.number)
                return ht_fail(builder->error, offset, "field %" PRIu32 " of an attribute is given twice",
                               field.number);
            present |= 1u << field.number;
            attribute->data = field;
            attribute->count += more;
            if (field.number == G || field.number == GRAPHS) {
                ht_i64s *pending = &builder->scopes.pending;
                if (!ht_resize_i64(pending, pending->count + 3))
                    return NO_MEMORY(builder);
                int64_t *graph = pending->data + pending->count - 3;
                graph[0] = HT_OFFSET(builder, field.begin);
                graph[1] = HT_OFFSET(builder, field.end);
                graph[2] = -1;
            }
        } else if (field.number == NAME) {
            if (!ht_expect(builder, &field, HT_LEN))
                return false;
            attribute->name = field.begin;
            attribute->name_end = field.end;
        } else if (field.number == TYPE) {
            if (!ht_expect(builder, &field, HT_VARINT))
                return false;
            type = field.value;
        } else if (field.number == REF_ATTR_NAME) {
            if (!ht_expect(builder, &field, HT_LEN))
                return false;
            if (field.end > field.begin)
                return ht_fail(builder->error, HT_OFFSET(builder, field.start),
                               "an attribute refers to a function's attribute, but stands outside of functions");
        }
    }
    int64_t offset = HT_OFFSET(builder, message->start);
    if (attribute->name == attribute->name_end)
        return ht_fail(builder->error, offset, "an attribute has no name");
    if (!ht_is_utf8(attribute->name, attribute->name_end - attribute->name))
        return ht_fail(builder->error, offset, "the name of an attribute is not UTF-8");
    if (type > LAST_TYPE)
        return ht_fail(builder->error, offset, "an attribute has the unknown type %" PRIu64, type);
    if (type != 0 ? (present & ~(1u << field_of_type[type])) != 0 : (present & (present - 1)) != 0)
        return ht_fail_about(builder->error, offset, HT_OFFSET(builder, attribute->name),
                             attribute->name_end - attribute->name,
                             "an attribute carries data of another type than it states");
    return true;
}

/* The number of a (domain, op type) pair. */
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
    int64_t texts = builder->op_texts.count;
    if (!ht_resize_i32(&builder->op_texts, texts + 2))
        return NO_MEMORY(builder);
    memcpy(builder->op_texts.data + texts, pair, sizeof pair);
    return (ht_push_i64(&builder->op_spans, ht_make_span(*op * (int64_t)sizeof pair, sizeof pair)) &&
            ht_table_add(&builder->op_table, hash, *op) && ht_push_i64(&index->op_type, op_type) &&
            ht_push_i64(&index->op_domain, domain)) ||
           NO_MEMORY(builder);
}

bool ht_add_constant(ht_builder *builder, const ht_field *field, int32_t value, uint8_t source, const uint8_t *begin,
                     const uint8_t *end, const ht_tensor *tensor, ht_span node_name)
{
    ht_index *index = builder->index;
    if (index->constant_dims.count > INT32_MAX) /* unreached: a file of 2 GiB of dims */
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

/* The tensor that an attribute of a Constant node defines. `body`: the AttributeProto. */
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
    /* An empty list or a zero may be encoded as an absent field; a tensor may not. */
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
    if (!ht_expect(builder, message, HT_LEN))
        return false;
    while (cursor.at < cursor.end)
        if (!ht_next_field(builder, &cursor, &field) ||
            (field.number == KEY && !ht_read_string(builder, &field, false, &key)) ||
            (field.number == VALUE && !ht_read_string(builder, &field, true, &value)))
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

bool ht_add_node(ht_builder *builder, const ht_field *message)
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
        if (!ht_next_field(builder, &cursor, &field))
            return false;
        switch (field.number) {
        case INPUT:
            value = -1;
            if (!ht_expect(builder, &field, HT_LEN))
                return false;
            if (field.end > field.begin && !ht_value(builder, field.begin, field.end, &value, &fresh))
                return false;
            if (!ht_push_i32(&index->inputs, value))
                return NO_MEMORY(builder);
            break;
        case OUTPUT:
            value = -1;
            if (!ht_expect(builder, &field, HT_LEN))
                return false;
            if (field.end > field.begin) {
                if (!ht_define(builder, field.begin, field.end, HT_IS_NODE_OUTPUT, &value, &fresh))
                    return false;
                constant_was_used = !fresh;
                named_outputs++;
            }
            if (!ht_push_i32(&index->outputs, value))
                return NO_MEMORY(builder);
            break;
        case NAME:
            if (!ht_read_string(builder, &field, true, &name))
                return false;
            break;
        case OP_TYPE:
            if (!ht_read_string(builder, &field, true, &op_type))
                return false;
            break;
        case DOMAIN_:
            if (!ht_read_string(builder, &field, true, &domain))
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
        return ht_add_constant(builder, message, value, HT_SOURCE_NODE, begin, end, &tensor, name);
    }
    if (named_outputs == 0 && name == 0)
        return ht_fail(builder->error, offset, "the node has neither a name nor an output");
    if (builder->scopes.pending.count > 0 && !ht_capture(builder, node))
        return false;
    if (node == INT32_MAX - 1 || index->inputs.count > INT32_MAX || /* unreached: a file of 2^31 nodes or names */
        index->outputs.count > INT32_MAX || index->captures.count > INT32_MAX)
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
