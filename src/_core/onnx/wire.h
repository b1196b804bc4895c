/* The protobuf wire format: varints and fields. Every length is checked against the enclosing message.
 *
 * Source: https://protobuf.dev/programming-guides/encoding. Stricter than protobuf's own parsers in two ways: a varint
 * that does not fit 64 bits is an error (they drop the excess bits), and so is a group (wire types 3 and 4), which ONNX
 * never uses. Nothing here allocates or recurses. */
#ifndef HETERO_ONNX_WIRE_H
#define HETERO_ONNX_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { HT_VARINT = 0, HT_FIXED64 = 1, HT_LEN = 2, HT_FIXED32 = 5 };

/* The unread part of a message. */
typedef struct {
    const uint8_t *at, *end;
} ht_cursor;

typedef struct {
    uint32_t number;
    uint32_t wire;
    uint64_t value;       /* VARINT, FIXED32, FIXED64: the bits; LEN: the payload's size */
    const uint8_t *start; /* the field's tag */
    const uint8_t *begin; /* payload of a LEN field */
    const uint8_t *end;   /* one past the field */
} ht_field;

/* The byte after the varint at `at`, or NULL if the varint is truncated or longer than 64 bits. */
static inline const uint8_t *ht_varint(const uint8_t *at, const uint8_t *end, uint64_t *value)
{
    uint64_t result = 0;
    for (int shift = 0;; shift += 7) {
        if (at == end)
            return NULL;
        uint8_t byte = *at++;
        if (shift == 63 && byte > 1)
            return NULL;
        result |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *value = result;
            return at;
        }
    }
}

/* Reads the next field of a message that is not at its end. Returns NULL on success, else a description of the error;
 * the cursor then stays at the field. */
static inline const char *ht_next(ht_cursor *cursor, ht_field *field)
{
    const uint8_t *at = cursor->at, *end = cursor->end;
    uint64_t tag = *at;
    field->start = at;
    if (tag < 0x80)
        at++;
    else if ((at = ht_varint(at, end, &tag)) == NULL)
        return "field tag is cut off or too long";
    if (tag > UINT32_MAX || tag < 8)
        return "field number is out of range";
    field->number = (uint32_t)tag >> 3;
    field->wire = (uint32_t)tag & 7;
    switch (field->wire) {
    case HT_LEN:
        if (at < end && *at < 0x80)
            field->value = *at++;
        else if ((at = ht_varint(at, end, &field->value)) == NULL)
            return "length is cut off or too long";
        if (field->value > (uint64_t)(end - at))
            return "length reaches past the end of the enclosing message";
        field->begin = at;
        at += field->value;
        break;
    case HT_VARINT:
        if ((at = ht_varint(at, end, &field->value)) == NULL)
            return "varint is cut off or has more than 64 bits";
        break;
    case HT_FIXED64:
        if (end - at < 8)
            return "64-bit value is cut off";
        memcpy(&field->value, at, 8);
        at += 8;
        break;
    case HT_FIXED32: {
        uint32_t bits;
        if (end - at < 4)
            return "32-bit value is cut off";
        memcpy(&bits, at, 4);
        field->value = bits;
        at += 4;
        break;
    }
    default:
        return "wire type is a group or unknown";
    }
    field->end = at;
    cursor->at = at;
    return NULL;
}

/* The number of varints in a packed payload; -1 if one is truncated or longer than 64 bits. */
static inline int64_t ht_count_varints(const uint8_t *at, const uint8_t *end)
{
    int64_t count = 0;
    int length = 0;
    for (; at < end; at++) {
        if (length == 9 && *at > 1)
            return -1;
        length++;
        if (*at < 0x80) {
            count++;
            length = 0;
        }
    }
    return length ? -1 : count;
}

#endif
