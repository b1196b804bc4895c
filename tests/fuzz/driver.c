/* Coverage-guided fuzzing where there is no libFuzzer: gcc -fsanitize-coverage=trace-pc,trace-cmp.
 *
 * Source: the loop of AFL (Zalewski, 2013): inputs that reach a new edge, or an edge a new magnitude of times, join the
 * corpus and are mutated in turn. Most mutations know the protobuf wire format: they pick a field at any depth, change,
 * drop, repeat or replace it (also by one of another input), and correct the lengths around it unless told to damage
 * them too. Numbers that the code compared with (trace-cmp) are tried as values.
 *
 *   driver SECONDS SEED STATE CORPUS_IN [CORPUS_OUT]
 *
 * STATE: a file that always holds the input being run, for whoever finds this process dead. CORPUS_OUT: a folder for
 * inputs with new coverage. Prints what it did at the end, as JSON. Deterministic for one seed, up to timing. */
#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LONGEST = 1 << 16, MAP = 1 << 16, MAX_CORPUS = 1 << 16, COMPARED = 256, MAX_FIELDS = 512, MAX_DEPTH = 40 };

/* ---- coverage ---- */

static uint8_t hits[MAP], seen[MAP];
static uint32_t touched[MAP];
static int touched_count;
static uintptr_t previous;
static uint64_t compared[COMPARED];
static uint32_t compared_count;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void)
{
    uintptr_t here = (uintptr_t)__builtin_return_address(0);
    uint32_t edge = (uint32_t)((here * 0x9E3779B97F4A7C15u >> 40) ^ previous) % MAP;
    previous = (here * 0x9E3779B97F4A7C15u >> 41) % MAP;
    if (hits[edge] == 0)
        touched[touched_count++] = edge;
    if (hits[edge] < 255)
        hits[edge]++;
}

#define TRACE(name, type)                                                                           \
    void name(type a, type b);                                                                      \
    void name(type a, type b)                                                                       \
    {                                                                                               \
        if (a != b)                                                                                 \
            compared[compared_count++ % COMPARED] = (uint64_t)(compared_count & 1 ? a : b);         \
    }
TRACE(__sanitizer_cov_trace_cmp1, uint8_t)
TRACE(__sanitizer_cov_trace_cmp2, uint16_t)
TRACE(__sanitizer_cov_trace_cmp4, uint32_t)
TRACE(__sanitizer_cov_trace_cmp8, uint64_t)
TRACE(__sanitizer_cov_trace_const_cmp1, uint8_t)
TRACE(__sanitizer_cov_trace_const_cmp2, uint16_t)
TRACE(__sanitizer_cov_trace_const_cmp4, uint32_t)
TRACE(__sanitizer_cov_trace_const_cmp8, uint64_t)
TRACE(__sanitizer_cov_trace_cmpf, float)
TRACE(__sanitizer_cov_trace_cmpd, double)

void __sanitizer_cov_trace_switch(uint64_t value, void *table);
void __sanitizer_cov_trace_switch(uint64_t value, void *table)
{
    const uint64_t *cases = table; /* count, bits, then the cases */
    (void)value;
    if (cases[0] > 0)
        compared[compared_count % COMPARED] = cases[2 + compared_count % cases[0]];
    compared_count++;
}

static uint8_t magnitude(uint8_t count)
{
    return count < 4 ? (uint8_t)(1 << (count - 1)) : count < 8 ? 8 : count < 16 ? 16 : count < 32 ? 32 : count < 128 ? 64 : 128;
}

/* Whether the last run did anything new. Clears its traces. */
static int take_coverage(void)
{
    int fresh = 0;
    for (int i = 0; i < touched_count; i++) {
        uint8_t bit = magnitude(hits[touched[i]]);
        if (!(seen[touched[i]] & bit))
            fresh += seen[touched[i]] == 0 ? 2 : 1;
        seen[touched[i]] |= bit;
        hits[touched[i]] = 0;
    }
    touched_count = 0;
    previous = 0;
    return fresh;
}

/* ---- randomness: xorshift64* (Marsaglia, Vigna) ---- */

static uint64_t state;
static uint64_t draw(void)
{
    state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
    return state * 0x2545F4914F6CDD1Du;
}
static uint32_t below(uint32_t bound) { return bound == 0 ? 0 : (uint32_t)(draw() >> 33) % bound; }
static bool chance(uint32_t in) { return below(in) == 0; }

/* ---- inputs ---- */

typedef struct {
    uint8_t *data;
    uint32_t size;
} input;
static input corpus[MAX_CORPUS];
static uint32_t corpus_count, seeds;

static void keep(const uint8_t *data, uint32_t size)
{
    if (corpus_count == MAX_CORPUS)
        return;
    uint8_t *copy = malloc(size ? size : 1);
    if (copy == NULL)
        abort();
    memcpy(copy, data, size);
    corpus[corpus_count++] = (input){copy, size};
}

/* ---- the wire format, just enough of it ---- */

typedef struct {
    uint32_t start, begin, end, number, wire; /* payload [begin, end) */
} field;

static bool read_varint(const uint8_t *data, uint32_t end, uint32_t *at, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        uint8_t byte = data[(*at)++];
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

/* The fields of a message; -1 if it is none. */
static int parse(const uint8_t *data, uint32_t begin, uint32_t end, field *fields)
{
    int count = 0;
    for (uint32_t at = begin; at < end && count < MAX_FIELDS;) {
        uint64_t tag, length = 0;
        field *one = &fields[count];
        one->start = at;
        if (!read_varint(data, end, &at, &tag) || tag >> 3 == 0 || tag >> 3 > 1 << 20)
            return -1;
        one->number = (uint32_t)(tag >> 3);
        one->wire = tag & 7;
        one->begin = at;
        if (one->wire == 0 && !read_varint(data, end, &at, &length))
            return -1;
        if (one->wire == 2) {
            if (!read_varint(data, end, &at, &length) || length > end - at)
                return -1;
            one->begin = at;
        }
        uint32_t more = one->wire == 0 ? 0 : one->wire == 1 ? 8 : one->wire == 5 ? 4 : (uint32_t)length;
        if ((one->wire > 2 && one->wire != 5) || more > end - at)
            return -1;
        at += more;
        one->end = at;
        count++;
    }
    return count;
}

typedef struct {
    uint8_t bytes[LONGEST];
    uint32_t size;
} buffer;

static void put(buffer *out, const uint8_t *data, uint32_t size)
{
    if (size > LONGEST - out->size)
        size = LONGEST - out->size;
    memcpy(out->bytes + out->size, data, size);
    out->size += size;
}

static void put_varint(buffer *out, uint64_t value, int extra)
{
    uint8_t bytes[16];
    uint32_t count = 0;
    do {
        bytes[count++] = (uint8_t)(value & 127) | 128;
        value >>= 7;
    } while (value != 0);
    while (extra-- > 0 && count < 12)
        bytes[count++] = 128;
    bytes[count - 1] &= 127;
    put(out, bytes, count);
}

static uint64_t interesting(void)
{
    static const uint64_t values[] = {0, 1, 2, 3, 7, 8, 16, 31, 32, 63, 64, 65, 127, 128, 255, 256, 4095, 65535, 1 << 24,
                                      0x7fffffff, 0x80000000, 0xffffffff, 1ull << 32, 1ull << 62, (1ull << 62) + 2,
                                      1ull << 61, INT64_MAX, 1ull << 63, UINT64_MAX, UINT64_MAX - 1};
    switch (below(4)) {
    case 0:
        return compared[below(COMPARED)];
    case 1:
        return below(32);
    default:
        return values[below(sizeof values / sizeof *values)];
    }
}

/* ---- mutations ---- */

static field path_fields[MAX_FIELDS], other_fields[MAX_FIELDS];

/* Some field of another input, at any depth. */
static bool borrow(uint32_t number, const uint8_t **data, field *found)
{
    for (int attempt = 0; attempt < 4; attempt++) {
        const input *from = &corpus[below(corpus_count)];
        uint32_t begin = 0, end = from->size;
        for (int depth = 0; depth < MAX_DEPTH; depth++) {
            int count = parse(from->data, begin, end, other_fields);
            if (count <= 0)
                break;
            field one = other_fields[below((uint32_t)count)];
            if (number == 0 || one.number == number || chance(8)) {
                *data = from->data;
                *found = one;
                if (number != 0 || chance(3))
                    return true;
            }
            if (one.wire != 2)
                break;
            begin = one.begin, end = one.end;
        }
    }
    return false;
}

static void put_bytes_mutated(buffer *out, const uint8_t *data, uint32_t size)
{
    uint32_t at = below(size + 1), length = below(1 + below(17));
    const uint8_t byte[4] = {(uint8_t)draw(), 0xff, 0x80, 0};
    switch (below(6)) {
    case 0: /* one byte */
        put(out, data, at);
        put(out, &byte[below(4)], 1);
        if (at < size)
            put(out, data + at + 1, size - at - 1);
        break;
    case 1: /* drop some */
        put(out, data, at);
        if (at + length < size)
            put(out, data + at + length, size - at - length);
        break;
    case 2: /* repeat some */
        put(out, data, at);
        put(out, data + at, length < size - at ? length : size - at);
        put(out, data + at, size - at);
        break;
    case 3: /* insert some */
        put(out, data, at);
        for (uint32_t i = 0; i < length; i++)
            put(out, &byte[i % 4], 1);
        put(out, data + at, size - at);
        break;
    case 4: /* one bit */
        put(out, data, size);
        if (size > 0 && out->size >= size)
            out->bytes[out->size - size + below(size)] ^= (uint8_t)(1 << below(8));
        break;
    default: /* cut off */
        put(out, data, at);
    }
}

/* The field, changed. `damage`: lengths may lie. */
static void put_field_mutated(buffer *out, const uint8_t *data, const field *one, bool damage)
{
    uint32_t number = chance(12) ? (chance(2) ? below(26) + 1 : (uint32_t)interesting()) : one->number;
    static buffer payload;
    const uint8_t *other;
    field borrowed;
    switch (below(8)) {
    case 0: /* dropped */
        return;
    case 1: /* twice */
        put(out, data + one->start, one->end - one->start);
        put(out, data + one->start, one->end - one->start);
        return;
    case 2: /* one of another input */
        if (borrow(chance(3) ? 0 : one->number, &other, &borrowed)) {
            if (chance(2))
                put(out, data + one->start, one->end - one->start);
            put(out, other + borrowed.start, borrowed.end - borrowed.start);
            return;
        }
        break;
    case 3: /* of another wire type */
        put_varint(out, (uint64_t)number << 3 | below(8), 0);
        put(out, data + one->begin, one->end - one->begin);
        return;
    default:
        break;
    }
    put_varint(out, (uint64_t)number << 3 | one->wire, chance(20) ? (int)below(8) : 0);
    if (one->wire == 0) {
        put_varint(out, interesting(), chance(8) ? (int)below(10) : 0);
    } else if (one->wire == 2) {
        payload.size = 0;
        put_bytes_mutated(&payload, data + one->begin, one->end - one->begin);
        put_varint(out, damage && chance(3) ? interesting() : payload.size, chance(20) ? (int)below(10) : 0);
        put(out, payload.bytes, payload.size);
    } else {
        uint64_t bits = chance(2) ? interesting() : draw();
        put(out, (const uint8_t *)&bits, one->wire == 5 ? 4 : 8);
    }
}

/* The message [begin, end) with one field at some depth changed. The way down is taken first, then the message is put
 * together from the inside, so that lengths come out right. */
static void mutate_message(const uint8_t *data, uint32_t size, buffer *out)
{
    static field way[MAX_DEPTH];
    static buffer inner, outer;
    uint32_t begin = 0, end = size;
    int depth = 0;
    bool damage = chance(10);
    for (; depth < MAX_DEPTH; depth++) {
        int count = parse(data, begin, end, path_fields);
        if (count <= 0)
            break;
        way[depth] = path_fields[below((uint32_t)count)];
        begin = way[depth].begin, end = way[depth].end;
        if (way[depth].wire != 2 || (depth > 0 && chance(5))) {
            depth++;
            break;
        }
    }
    inner.size = 0;
    if (depth == 0) {
        put_bytes_mutated(out, data, size);
        return;
    }
    put_field_mutated(&inner, data, &way[depth - 1], damage);
    for (int level = depth - 1; level >= 0; level--) {
        /* inner stands for the field way[level]; put what is around it within its message */
        uint32_t from = level == 0 ? 0 : way[level - 1].begin, to = level == 0 ? size : way[level - 1].end;
        outer.size = 0;
        put(&outer, data + from, way[level].start - from);
        put(&outer, inner.bytes, inner.size);
        put(&outer, data + way[level].end, to - way[level].end);
        inner.size = 0;
        if (level > 0) {
            put_varint(&inner, (uint64_t)way[level - 1].number << 3 | 2, 0);
            put_varint(&inner, outer.size + (damage && chance(6) ? (uint64_t)below(5) - 2 : 0), 0);
        }
        put(&inner, outer.bytes, outer.size);
    }
    put(out, inner.bytes, inner.size);
}

/* ---- the loop ---- */

static uint8_t *current; /* STATE: size, then the bytes */

static int run(const uint8_t *data, uint32_t size)
{
    memcpy(current + 4, data, size);
    memcpy(current, &size, 4);
    uint8_t *copy = malloc(size ? size : 1); /* exactly so long, for the address sanitizer */
    if (copy == NULL)
        abort();
    memcpy(copy, data, size);
    LLVMFuzzerTestOneInput(copy, size);
    free(copy);
    return take_coverage();
}

static void load(const char *folder)
{
    static uint8_t bytes[LONGEST];
    struct dirent **names;
    int count = scandir(folder, &names, NULL, alphasort);
    if (count < 0) {
        perror(folder);
        exit(2);
    }
    for (int i = 0; i < count; i++) {
        char path[4096];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]->d_name);
        free(names[i]);
        FILE *file = fopen(path, "rb");
        if (file == NULL)
            continue;
        size_t size = fread(bytes, 1, sizeof bytes, file);
        bool fits = feof(file) || fgetc(file) == EOF;
        fclose(file);
        if (fits && size > 0 && run(bytes, (uint32_t)size) > 0)
            keep(bytes, (uint32_t)size);
    }
    free(names);
    seeds = corpus_count;
}

static void save(const char *folder, const uint8_t *data, uint32_t size)
{
    char path[4096];
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (uint32_t i = 0; i < size; i++)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    snprintf(path, sizeof path, "%s/%016llx", folder, (unsigned long long)hash);
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return;
    fwrite(data, 1, size, file);
    fclose(file);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

int main(int argc, char **argv)
{
    static buffer mutant, before;
    if (argc < 5)
        return 2;
    double end = now() + atof(argv[1]);
    state = strtoull(argv[2], NULL, 10) * 2 + 1;
    int file = open(argv[3], O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, LONGEST + 4) != 0)
        return 2;
    current = mmap(NULL, LONGEST + 4, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (current == MAP_FAILED)
        return 2;
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    load(argv[4]);
    if (corpus_count == 0)
        keep((const uint8_t *)"\x08\x08", 2);
    uint64_t runs = 0;
    while (runs % 64 != 0 || now() < end) {
        /* What was found last is tried more often. */
        uint32_t chosen = chance(3) && corpus_count > seeds ? seeds + below(corpus_count - seeds) : below(corpus_count);
        if (runs % 64 == 0)
            alarm(30); /* an input that takes longer ends the process */
        before.size = 0;
        put(&before, corpus[chosen].data, corpus[chosen].size);
        for (uint32_t steps = 1 + below(1 + below(6)); steps > 0; steps--) {
            mutant.size = 0;
            if (chance(8))
                put_bytes_mutated(&mutant, before.bytes, before.size);
            else
                mutate_message(before.bytes, before.size, &mutant);
            before = mutant;
        }
        runs++;
        if (run(mutant.bytes, mutant.size) > 0) {
            keep(mutant.bytes, mutant.size);
            if (argc > 5)
                save(argv[5], mutant.bytes, mutant.size);
        }
    }
    int edges = 0;
    for (int i = 0; i < MAP; i++)
        edges += seen[i] != 0;
    printf("{\"runs\": %llu, \"edges\": %d, \"seeds\": %u, \"corpus\": %u}\n", (unsigned long long)runs, edges, seeds,
           corpus_count);
    for (uint32_t i = 0; i < corpus_count; i++)
        free(corpus[i].data);
    return 0;
}
