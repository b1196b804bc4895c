/* Fuzz target: bytes through the ONNX reader, as libFuzzer and driver.c call it.
 *
 * Beyond what the sanitizers see, everything the reader promises about an index it accepts is checked, since Python
 * and the partitioner rely on it without looking: ids and spans in range, lists monotone, the order topological, each
 * key found again. Some inputs are read a second time while an allocation fails. */
#include "skeleton.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- allocations that fail: the linker puts these in place of the reader's (--wrap) ---- */

static int64_t allocations, failing = -1;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *block, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *block, size_t size);

void *__wrap_malloc(size_t size) { return allocations++ == failing ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return allocations++ == failing ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *block, size_t size) { return allocations++ == failing ? NULL : __real_realloc(block, size); }

/* ---- what must hold ---- */

#define CHECK(condition)                                                                            \
    do {                                                                                            \
        if (!(condition)) {                                                                         \
            fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #condition);         \
            abort();                                                                                \
        }                                                                                           \
    } while (0)

static const uint64_t hash_key[2] = {0x0123456789abcdefu, 0xfedcba9876543210u};

static void check_span(ht_span span, size_t size, const uint8_t *data)
{
    CHECK(span >= 0 && ht_span_offset(span) + ht_span_length(span) <= (int64_t)size);
    CHECK(ht_is_utf8(data + ht_span_offset(span), ht_span_length(span)));
}

static void check_range(int64_t begin, int64_t end, size_t size)
{
    CHECK(0 <= begin && begin <= end && end <= (int64_t)size);
}

static void check_csr(const ht_i32s *indptr, int64_t rows, int64_t entries)
{
    CHECK(indptr->count == rows + 1 && indptr->data[0] == 0 && indptr->data[rows] == entries);
    for (int64_t row = 0; row < rows; row++)
        CHECK(indptr->data[row] <= indptr->data[row + 1]);
}

static void check_lists(const ht_index *index)
{
    int64_t nodes = index->node_op.count, values = index->value_name.count;
    const ht_i32s *indptr[] = {&index->input_indptr, &index->output_indptr, &index->capture_indptr};
    const ht_i32s *lists[] = {&index->inputs, &index->outputs, &index->captures};
    for (int list = 0; list < 3; list++) {
        check_csr(indptr[list], nodes, lists[list]->count);
        for (int64_t i = 0; i < lists[list]->count; i++)
            CHECK(lists[list]->data[i] >= (list == 2 ? 0 : -1) && lists[list]->data[i] < values);
    }
    CHECK(index->value_producer.count == values && index->value_constant.count == values);
    CHECK(index->value_info.count == values && index->value_defined.count == values);
    for (int64_t node = 0; node < nodes; node++) {
        for (int list = 0; list < 3; list++)
            for (int32_t i = indptr[list]->data[node]; i < indptr[list]->data[node + 1]; i++) {
                int32_t value = lists[list]->data[i];
                if (value < 0)
                    continue;
                int32_t producer = index->value_producer.data[value];
                CHECK(list == 1 ? producer == node : producer < node);
            }
        CHECK(index->node_op.data[node] >= 0 && index->node_op.data[node] < index->op_type.count);
    }
    for (int64_t value = 0; value < values; value++) {
        CHECK(index->value_producer.data[value] >= -1 && index->value_producer.data[value] < nodes);
        CHECK(index->value_constant.data[value] >= -1);
        CHECK(index->value_constant.data[value] < index->constant_value.count);
        CHECK(index->value_info.data[value] >= -1 && index->value_info.data[value] < index->info_value.count);
        CHECK(index->value_defined.data[value] & ~HT_IS_OUTPUT);
        CHECK(!(index->value_producer.data[value] >= 0 && index->value_constant.data[value] >= 0));
    }
}

static void check_spans(const ht_index *index, const uint8_t *data, size_t size)
{
    const ht_i64s *texts[] = {&index->node_name, &index->op_type, &index->op_domain, &index->value_name,
                              &index->constant_node_name, &index->affinity_value, &index->opset_domain,
                              &index->function_domain, &index->function_name, &index->function_overload};
    for (size_t list = 0; list < sizeof texts / sizeof *texts; list++)
        for (int64_t i = 0; i < texts[list]->count; i++)
            check_span(texts[list]->data[i], size, data);
    check_span(index->graph_name, size, data);
    const ht_i64s *ranges[][2] = {
        {&index->node_start, &index->node_end}, {&index->constant_start, &index->constant_end},
        {&index->constant_begin, &index->constant_until}, {&index->constant_data_begin, &index->constant_data_end},
        {&index->info_start, &index->info_end}, {&index->info_type_begin, &index->info_type_end},
        {&index->affinity_start, &index->affinity_end}, {&index->function_begin, &index->function_end},
        {&index->header_start, &index->header_end}, {&index->rest_start, &index->rest_end}};
    for (size_t list = 0; list < sizeof ranges / sizeof *ranges; list++) {
        CHECK(ranges[list][0]->count == ranges[list][1]->count);
        for (int64_t i = 0; i < ranges[list][0]->count; i++)
            check_range(ranges[list][0]->data[i], ranges[list][1]->data[i], size);
    }
    for (int64_t node = 0; node < index->node_op.count; node++)
        CHECK(index->node_start.data[node] + index->node_header.data[node] <= index->node_end.data[node]);
}

static void check_constants(const ht_index *index, const uint8_t *data)
{
    int64_t count = index->constant_value.count;
    CHECK(index->constant_dims_indptr.count == count + 1);
    for (int64_t i = 0; i < count; i++) {
        int64_t begin = index->constant_dims_indptr.data[i], end = index->constant_dims_indptr.data[i + 1];
        CHECK(0 <= begin && begin <= end && end <= index->constant_dims.count);
        for (int64_t dim = begin; dim < end; dim++)
            CHECK(index->constant_dims.data[dim] >= 0);
        CHECK(index->value_constant.data[index->constant_value.data[i]] == i);
        CHECK(index->constant_kind.data[i] <= HT_DATA_ATTRIBUTE && index->constant_dtype.data[i] > 0);
        if (index->constant_kind.data[i] == HT_DATA_ATTRIBUTE)
            continue;
        ht_error error = {.offset = -1};
        ht_tensor tensor;
        ht_i64s dims = {0};
        ht_cursor body = {data + index->constant_begin.data[i], data + index->constant_until.data[i]};
        bool sparse = index->constant_kind.data[i] == HT_DATA_SPARSE;
        CHECK((sparse ? ht_read_sparse_tensor : ht_read_tensor)(data, body, &dims, &tensor, &error) || error.no_memory);
        CHECK(error.no_memory || dims.count == end - begin);
        free(dims.data);
    }
}

static void check_types(const ht_index *index, const uint8_t *data)
{
    for (int64_t i = 0; i < index->info_value.count; i++) {
        ht_error error;
        ht_i64s sizes = {0}, symbols = {0};
        int32_t dtype;
        int64_t rank;
        CHECK(index->info_value.data[i] >= -1 && index->info_value.data[i] < index->value_name.count);
        CHECK(index->info_section.data[i] == 13 || index->info_value.data[i] >= 0);
        if (ht_read_type(data, index->info_type_begin.data[i], index->info_type_end.data[i], &dtype, &rank, &sizes,
                         &symbols, &error))
            CHECK(rank <= HT_MAX_RANK && (rank < 0 || (sizes.count == rank && symbols.count == rank)));
        free(sizes.data);
        free(symbols.data);
    }
}

static void check_keys(const ht_index *index, const uint8_t *data, size_t size)
{
    ht_keys keys = {0};
    ht_error error;
    if (ht_keys_build(data, index, hash_key, &keys, &error)) {
        CHECK(keys.key.count == index->node_op.count + index->constant_value.count);
        for (int64_t entry = 0; entry < keys.key.count; entry++) {
            if (entry >= index->node_op.count &&
                index->constant_source.data[entry - index->node_op.count] != HT_SOURCE_NODE)
                continue;
            ht_span key = keys.key.data[entry];
            const uint8_t *string = data + ht_span_offset(key);
            CHECK(key != 0);
            check_span(key, size, data);
            CHECK(ht_table_find(&keys.table, keys.key.data, data, ht_hash(hash_key, string, ht_span_length(key)), string,
                                ht_span_length(key)) == entry);
        }
    } else {
        CHECK(error.no_memory || error.message[0] != '\0');
    }
    ht_keys_free(&keys);
}

/* The skeleton is a graph of the same nodes and values, which are found again. */
static void check_skeleton(const ht_index *index, const uint8_t *data)
{
    int64_t values = index->value_name.count, constants = index->constant_value.count, infos = index->info_value.count;
    uint8_t *how = calloc((size_t)(constants + infos + values) + 1, 1), *written = how ? how + constants : NULL;
    int32_t *found = malloc((size_t)(values + 1) * sizeof *found);
    ht_u8s graph = {0}, model = {0};
    ht_index answer = {0};
    ht_error error;
    if (how == NULL || found == NULL)
        goto done;
    for (int64_t i = 0; i < constants; i++)
        how[i] = i % 2 == 0 && index->constant_kind.data[i] != HT_DATA_SPARSE ? HT_AS_IT_IS : HT_AS_INPUT;
    for (int64_t i = 0; i < infos; i++)
        written[i] = index->info_value.data[i] >= 0;
    for (int64_t i = 0; i < index->captures.count; i++)
        written[infos + index->captures.data[i]] = 1;
    const ht_skeleton_choice choice = {how, written, written + infos, 256, "hidden "};
    if (!ht_skeleton_write(data, index, &choice, &graph))
        goto done;
    /* Around it, a ModelProto: the graph is field 7, its length a varint of five bytes. */
    const uint8_t head[6] = {7 << 3 | HT_LEN, (uint8_t)(graph.count | 128), (uint8_t)(graph.count >> 7 | 128),
                             (uint8_t)(graph.count >> 14 | 128), (uint8_t)(graph.count >> 21 | 128),
                             (uint8_t)(graph.count >> 28 & 15)};
    if (!ht_resize_u8(&model, graph.count + 6))
        goto done;
    memcpy(model.data, head, 6);
    if (graph.count > 0)
        memcpy(model.data + 6, graph.data, (size_t)graph.count);
    bool built = ht_index_build(model.data, model.count, hash_key, &answer, &error);
    CHECK(built || error.no_memory || index->captures.count > 0);
    if (!built)
        goto done;
    CHECK(answer.node_op.count == index->node_op.count && answer.inputs.count == index->inputs.count);
    ht_skeleton_values(data, index, hash_key, model.data, &answer, found);
    for (int64_t value = 0; value < values; value++)
        CHECK(found[value] >= 0 && found[value] < answer.value_name.count);
done:
    free(how);
    free(found);
    free(graph.data);
    free(model.data);
    ht_index_free(&answer);
}

static void check_error(const ht_error *error, const uint8_t *data, size_t size)
{
    CHECK(memchr(error->message, '\0', sizeof error->message) != NULL && error->message[0] != '\0');
    CHECK(error->offset >= -1 && error->offset <= (int64_t)size);
    CHECK(error->place_count >= 0 && error->place_count <= HT_MAX_PLACES);
    if (error->has_subject)
        CHECK(ht_span_offset(error->subject) + ht_span_length(error->subject) <= (int64_t)size);
    for (int i = 0; i < error->place_count; i++) {
        check_range(error->place_begin[i], error->place_end[i], size);
        for (uint32_t number = 1; number < 9; number++) {
            ht_span name = ht_first_string(data, error->place_begin[i], error->place_end[i], number);
            CHECK(ht_span_offset(name) + ht_span_length(name) <= (int64_t)size);
        }
    }
}

static bool read_once(const uint8_t *data, size_t size)
{
    ht_index index = {0};
    ht_error error;
    bool done = ht_index_build(data, (int64_t)size, hash_key, &index, &error);
    if (done) {
        check_lists(&index);
        check_spans(&index, data, size);
        check_constants(&index, data);
        check_types(&index, data);
        check_keys(&index, data, size);
        check_skeleton(&index, data);
    } else {
        check_error(&error, data, size);
        CHECK(failing >= 0 || !error.no_memory);
    }
    ht_index_free(&index);
    return done;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    failing = -1;
    allocations = 0;
    bool done = read_once(data, size);
    uint64_t hash = ht_hash(hash_key, data, (int64_t)size);
    if (done && hash % 4 == 0 && allocations > 0) {
        failing = (int64_t)(hash / 4 % (uint64_t)allocations);
        allocations = 0;
        read_once(data, size);
        failing = -1;
    }
    return 0;
}
