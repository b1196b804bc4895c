#include "builder.h"

#define NO_MEMORY(builder) ht_fail_memory((builder)->error)

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
    return ht_define(builder, name, name + tensor.name_length, HT_IS_INITIALIZER, &value, &fresh) &&
           ht_add_constant(builder, message, value, sparse ? HT_SOURCE_SPARSE_INITIALIZER : HT_SOURCE_INITIALIZER,
                        message->begin, message->end, &tensor, 0);
}

/* A ValueInfoProto. Inputs (section 11) define their name and outputs (12) read it; value infos (13) do neither. */
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
        if (!ht_next_field(builder, &cursor, &field))
            return false;
        if (field.number == NAME) {
            if (!ht_expect(builder, &field, HT_LEN))
                return false;
            name = field;
        } else if (field.number == TYPE) {
            if (!ht_expect(builder, &field, HT_LEN))
                return false;
            if (type.begin != NULL)
                return ht_fail(builder->error, HT_OFFSET(builder, field.start), "the type is given twice");
            type = field;
        }
    }
    if (name.begin == name.end)
        return ht_fail(builder->error, offset, "the value has no name");
    ht_span span;
    if (!ht_read_string(builder, &name, true, &span))
        return false;
    if (section == 11 && !ht_define(builder, name.begin, name.end, HT_IS_INPUT, &value, &fresh))
        return false;
    if (section == 12) {
        if (!ht_value(builder, name.begin, name.end, &value, &fresh))
            return false;
        if (index->value_defined.data[value] & HT_IS_OUTPUT)
            return ht_fail(builder->error, offset, "the graph output is listed twice");
        index->value_defined.data[value] |= HT_IS_OUTPUT;
    }
    if (index->info_value.count == INT32_MAX) /* unreached: a file of 2^31 inputs, outputs and value infos */
        return ht_fail(builder->error, offset, "more than 2^31 - 1 inputs, outputs and value infos");
    return (ht_push_u8(&index->info_section, section) && ht_push_i32(&index->info_value, value) &&
            ht_push_i64(&builder->info_name, span) && ht_push_i64(&index->info_start, offset) &&
            ht_push_i64(&index->info_end, HT_OFFSET(builder, message->end)) &&
            ht_push_i64(&index->info_type_begin, type.begin ? HT_OFFSET(builder, type.begin) : 0) &&
            ht_push_i64(&index->info_type_end, type.begin ? HT_OFFSET(builder, type.end) : 0)) ||
           NO_MEMORY(builder);
}

/* Appends [start, end) to a list of ranges, merging it with the last range if they touch. */
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
    for (int i = 0; i < HT_SCOUT_FIELDS; i++)
        ht_scout_field(builder, &scout);
    while (cursor.at < cursor.end) {
        bool done = true;
        ht_place place = HT_PLACE_GRAPH;
        int64_t ordinal = -1;
        ht_scout_field(builder, &scout);
        if (!ht_next_field(builder, &cursor, &field))
            return ht_in_place(builder->error, HT_PLACE_GRAPH, 0, 0, -1);
        bool message_field = field.number == NODE || field.number == INITIALIZER || field.number == SPARSE ||
                             (field.number >= INPUT && field.number <= INFO);
        if (message_field && !ht_expect(builder, &field, HT_LEN))
            return ht_in_place(builder->error, HT_PLACE_GRAPH, 0, 0, -1);
        switch (field.number) {
        case NODE:
            place = HT_PLACE_NODE;
            ordinal = builder->nodes++;
            done = ht_add_node(builder, &field);
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
            done = ht_read_string(builder, &field, true, &index->graph_name);
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
        if (!ht_next_field(builder, &cursor, &field))
            return false;
        if (field.number == DOMAIN_ && !ht_read_string(builder, &field, true, &domain))
            return false;
        if (field.number == VERSION) {
            if (!ht_expect(builder, &field, HT_VARINT))
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
        if (!ht_next_field(builder, &cursor, &field) ||
            (field.number == NAME && !ht_read_string(builder, &field, true, &name)) ||
            (field.number == DOMAIN_ && !ht_read_string(builder, &field, true, &domain)) ||
            (field.number == OVERLOAD && !ht_read_string(builder, &field, true, &overload)))
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
        if (!ht_next_field(builder, &cursor, &field))
            return ht_in_place(builder->error, HT_PLACE_MODEL, 0, 0, -1);
        bool message_field = field.number == GRAPH || field.number == OPSET || field.number == FUNCTION;
        if ((message_field && !ht_expect(builder, &field, HT_LEN)) ||
            (field.number == IR_VERSION && !ht_expect(builder, &field, HT_VARINT)))
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
            done = ordinal < HT_MAX_OPSETS ? add_opset(builder, &field)
                                           : ht_fail(builder->error, HT_OFFSET(builder, field.start),
                                                     "more than %d opset imports", HT_MAX_OPSETS);
        } else if (field.number == FUNCTION) {
            place = HT_PLACE_FUNCTION;
            ordinal = builder->functions++;
            done = ordinal < HT_MAX_FUNCTIONS ? add_function(builder, &field)
                                              : ht_fail(builder->error, HT_OFFSET(builder, field.start),
                                                        "more than %d functions", HT_MAX_FUNCTIONS);
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

/* Maps each info to its value, and each value to its first info that has a type. Inputs take precedence over outputs,
 * and outputs over value infos. */
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

/* The row of a CSR list that contains position `at`. */
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

/* Checks that every value that is read is also defined. */
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
