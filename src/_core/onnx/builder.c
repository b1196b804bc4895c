/* Helpers that all parts of the index builder use: fields, strings, and adding names as values. */
#include "builder.h"

bool ht_next_field(ht_builder *builder, ht_cursor *cursor, ht_field *field)
{
    const char *trouble = ht_next(cursor, field);
    return trouble == NULL || ht_fail(builder->error, HT_OFFSET(builder, cursor->at), "%s", trouble);
}

bool ht_expect(ht_builder *builder, const ht_field *field, uint32_t wire)
{
    return ht_expect_wire(builder->base, field, wire, builder->error);
}

bool ht_read_string(ht_builder *builder, const ht_field *field, bool is_text, ht_span *span)
{
    if (!ht_expect(builder, field, HT_LEN))
        return false;
    int64_t offset = HT_OFFSET(builder, field->begin), length = field->end - field->begin;
    if (length > HT_MAX_NAME)
        return ht_fail(builder->error, offset, "a string has more than %d bytes", HT_MAX_NAME);
    if (is_text && !ht_is_utf8(field->begin, length))
        return ht_fail(builder->error, offset, "a string is not UTF-8");
    *span = length == 0 ? 0 : ht_make_span(offset, length);
    return true;
}

/* The hash of a name; usually the scout has already computed it. */
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
        return ht_fail_memory(builder->error);
    if (!*fresh)
        return true;
    if (!ht_is_utf8(begin, length))
        return ht_fail(builder->error, offset, "a name is not UTF-8");
    return ht_push_u8(&index->value_defined, 0) || ht_fail_memory(builder->error);
}

bool ht_define(ht_builder *builder, const uint8_t *begin, const uint8_t *end, uint8_t kind, int32_t *value,
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
