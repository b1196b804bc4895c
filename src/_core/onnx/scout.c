/* Prefetches memory ahead of the pass over the graph.
 *
 * Each lookup in a table of millions of names costs three cache misses: the slot, the span, and the bytes to compare.
 * The scout runs some fields ahead of the pass and prefetches this memory, so that the misses overlap. It ignores
 * malformed fields; the pass reports them. For a million nodes, reading takes 0.49 s instead of 0.78 s
 * (bench/reading.py). */
#include "builder.h"

/* A name's span is prefetched after SCOUT_SPAN more names, its bytes after SCOUT_BYTES more. */
enum { SCOUT_SPAN = 12, SCOUT_BYTES = 24 };

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
    scout->ring[met % HT_SCOUT_RING].hash = hash;
    if (met < SCOUT_BYTES)
        return;
    uint32_t at = (met - SCOUT_SPAN) % HT_SCOUT_RING;
    scout->ring[at].guess = ht_table_guess(&index->values, scout->ring[at].hash);
    if (scout->ring[at].guess >= 0)
        __builtin_prefetch(&index->value_name.data[scout->ring[at].guess]);
    at = (met - SCOUT_BYTES) % HT_SCOUT_RING;
    if (met >= SCOUT_SPAN + SCOUT_BYTES && scout->ring[at].guess >= 0) {
        ht_span span = index->value_name.data[scout->ring[at].guess];
        __builtin_prefetch(builder->base + ht_span_offset(span));
        __builtin_prefetch(builder->base + ht_span_offset(span) + ht_span_length(span));
    }
}

void ht_scout_field(ht_builder *builder, ht_scout *scout)
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
