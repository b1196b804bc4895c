#include "names.h"

#define ROTATE(x, bits) ((x) << (bits) | (x) >> (64 - (bits)))
#define SIP_ROUND                                                                                   \
    do {                                                                                            \
        v0 += v1, v1 = ROTATE(v1, 13), v1 ^= v0, v0 = ROTATE(v0, 32);                               \
        v2 += v3, v3 = ROTATE(v3, 16), v3 ^= v2;                                                    \
        v0 += v3, v3 = ROTATE(v3, 21), v3 ^= v0;                                                    \
        v2 += v1, v1 = ROTATE(v1, 17), v1 ^= v2, v2 = ROTATE(v2, 32);                               \
    } while (0)

uint64_t ht_hash(const uint64_t key[2], const uint8_t *string, int64_t length)
{
    uint64_t v0 = key[0] ^ 0x736f6d6570736575u, v1 = key[1] ^ 0x646f72616e646f6du;
    uint64_t v2 = key[0] ^ 0x6c7967656e657261u, v3 = key[1] ^ 0x7465646279746573u;
    uint64_t word;
    int64_t left = length;
    for (; left >= 8; left -= 8, string += 8) {
        memcpy(&word, string, 8);
        v3 ^= word;
        SIP_ROUND;
        v0 ^= word;
    }
    word = (uint64_t)length << 56;
    for (int64_t i = 0; i < left; i++)
        word |= (uint64_t)string[i] << (8 * i);
    v3 ^= word;
    SIP_ROUND;
    v0 ^= word;
    v2 ^= 0xff;
    SIP_ROUND;
    SIP_ROUND;
    SIP_ROUND;
    return v0 ^ v1 ^ v2 ^ v3;
}

int32_t ht_table_find(const ht_table *table, const ht_span *spans, const uint8_t *base, uint64_t hash,
                      const uint8_t *string, int64_t length)
{
    if (table->count == 0)
        return -1;
    uint32_t tag = (uint32_t)hash;
    for (uint64_t slot = tag & table->mask; table->slots[slot] != 0; slot = (slot + 1) & table->mask) {
        uint64_t entry = table->slots[slot];
        if ((uint32_t)(entry >> 32) != tag)
            continue;
        int32_t id = (int32_t)(uint32_t)entry - 1;
        ht_span span = spans[id];
        if (ht_span_length(span) == length && memcmp(base + ht_span_offset(span), string, (size_t)length) == 0)
            return id;
    }
    return -1;
}

int32_t ht_table_guess(const ht_table *table, uint64_t hash)
{
    uint32_t tag = (uint32_t)hash;
    for (uint64_t slot = tag & table->mask; table->slots[slot] != 0; slot = (slot + 1) & table->mask)
        if ((uint32_t)(table->slots[slot] >> 32) == tag)
            return (int32_t)(uint32_t)table->slots[slot] - 1;
    return -1;
}

static void place(ht_table *table, uint64_t entry)
{
    uint64_t slot = entry >> 32 & table->mask;
    while (table->slots[slot] != 0)
        slot = (slot + 1) & table->mask;
    table->slots[slot] = entry;
}

bool ht_table_add(ht_table *table, uint64_t hash, int32_t id)
{
    uint64_t size = table->slots == NULL ? 0 : table->mask + 1;
    if ((uint64_t)table->count * 3 >= size * 2) { /* keep the table at most two thirds full */
        uint64_t larger = size == 0 ? 64 : size * 2;
        uint64_t *old = table->slots, *slots = calloc(larger, sizeof *slots);
        if (slots == NULL)
            return false;
        table->slots = slots;
        table->mask = larger - 1;
        for (uint64_t i = 0; i < size; i++)
            if (old[i] != 0)
                place(table, old[i]);
        free(old);
    }
    place(table, (uint64_t)(uint32_t)hash << 32 | (uint32_t)(id + 1));
    table->count++;
    return true;
}

int32_t ht_intern(ht_table *table, ht_i64s *spans, uint64_t hash, const uint8_t *base, int64_t offset, int64_t length,
                  bool *fresh)
{
    int32_t id = ht_table_find(table, spans->data, base, hash, base + offset, length);
    *fresh = id < 0;
    if (id >= 0)
        return id;
    if (spans->count >= INT32_MAX - 1) /* unreached: a file of 2^31 names */
        return -1;
    id = (int32_t)spans->count;
    if (!ht_push_i64(spans, ht_make_span(offset, length)) || !ht_table_add(table, hash, id))
        return -1;
    return id;
}

void ht_table_free(ht_table *table)
{
    free(table->slots);
    *table = (ht_table){0};
}

bool ht_is_utf8(const uint8_t *at, int64_t length)
{
    const uint8_t *end = at + length;
    while (at < end) {
        uint64_t word;
        if (end - at >= 8 && (memcpy(&word, at, 8), (word & 0x8080808080808080u) == 0)) {
            at += 8;
            continue;
        }
        uint8_t lead = *at++;
        if (lead < 0x80)
            continue;
        int more = lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
        if (lead < 0xc2 || lead > 0xf4 || end - at < more)
            return false;
        uint8_t low = 0x80, high = 0xbf; /* range of the second byte */
        if (lead == 0xe0)
            low = 0xa0;
        else if (lead == 0xed)
            high = 0x9f;
        else if (lead == 0xf0)
            low = 0x90;
        else if (lead == 0xf4)
            high = 0x8f;
        if (*at < low || *at > high)
            return false;
        for (at++; more > 1; more--, at++)
            if ((*at & 0xc0) != 0x80)
                return false;
    }
    return true;
}
