/* A library to preload: fails the n-th allocation, or the n-th call that writes or makes files, and counts both.
 *
 * Allocations count if their caller lies in a module whose path contains one of the words in FAULTS_CALLERS, separated
 * by colons. The blocks of those callers are kept in a table, so that leaks show. Calls for files count if their
 * thread armed the library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OFF, MEMORY, FILES, SHORT_WRITES };

#define MAX_RANGES 64
#define SLOTS (1u << 20) /* more than twice the blocks that a process of these tests has at once */

static struct { uintptr_t begin, end; } ranges[MAX_RANGES];
static int num_ranges;
static atomic_int armed;
static atomic_long countdown, seen, live;
static long lasting;
static int error_number;
static pthread_t armed_by;
static _Atomic uintptr_t slots[SLOTS]; /* open addressing; 1 marks a block that was freed */

extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static int collect(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    const char *words = getenv("FAULTS_CALLERS");
    char copy[256], *rest = copy;
    strncpy(copy, words ? words : "", sizeof copy - 1);
    copy[sizeof copy - 1] = 0;
    for (char *word; (word = strsep(&rest, ":"));) {
        if (!*word || !strstr(info->dlpi_name, word))
            continue;
        for (int i = 0; i < info->dlpi_phnum && num_ranges < MAX_RANGES; i++)
            if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
                ranges[num_ranges].begin = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
                ranges[num_ranges].end = ranges[num_ranges].begin + info->dlpi_phdr[i].p_memsz;
                num_ranges++;
            }
        break;
    }
    return 0;
}

/* Looks for the modules that count. Returns how many segments of code they have. */
int faults_find(void)
{
    num_ranges = 0;
    dl_iterate_phdr(collect, NULL);
    return num_ranges;
}

/* The n-th call from now on fails, and the `more` calls after it. */
void faults_arm(int kind, long n, long more, int error)
{
    armed_by = pthread_self();
    atomic_store(&countdown, n), atomic_store(&seen, 0);
    lasting = more, error_number = error;
    atomic_store(&armed, kind);
}

/* Returns how many calls counted since it was armed. */
long faults_disarm(void)
{
    atomic_store(&armed, OFF);
    return atomic_load(&seen);
}

long faults_live(void)
{
    return atomic_load(&live);
}

static int counts(const void *caller)
{
    for (int i = 0; i < num_ranges; i++)
        if ((uintptr_t)caller - ranges[i].begin < ranges[i].end - ranges[i].begin)
            return 1;
    return 0;
}

static int fails(int kind)
{
    if (atomic_load(&armed) != kind || (kind != MEMORY && !pthread_equal(armed_by, pthread_self())))
        return 0;
    atomic_fetch_add(&seen, 1);
    const long left = atomic_fetch_sub(&countdown, 1) - 1;
    return left <= 0 && left >= -lasting;
}

static uint32_t slot_of(uintptr_t block)
{
    return (uint32_t)((block >> 4) * 0x9E3779B97F4A7C15u >> 44);
}

static void *keep(void *block)
{
    if (!block)
        return block;
    for (uint32_t at = slot_of((uintptr_t)block);; at = (at + 1) % SLOTS) {
        uintptr_t free_slot = atomic_load(&slots[at]);
        if (free_slot <= 1 && atomic_compare_exchange_strong(&slots[at], &free_slot, (uintptr_t)block)) {
            atomic_fetch_add(&live, 1);
            return block;
        }
    }
}

static void forget(void *block)
{
    if (!block || !num_ranges)
        return;
    uint32_t at = slot_of((uintptr_t)block);
    for (uintptr_t found; (found = atomic_load(&slots[at])); at = (at + 1) % SLOTS)
        if (found == (uintptr_t)block) {
            atomic_store(&slots[at], 1);
            atomic_fetch_sub(&live, 1);
            return;
        }
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t size)
{
    if (!counts(CALLER))
        return __libc_malloc(size);
    return fails(MEMORY) ? (errno = ENOMEM, NULL) : keep(__libc_malloc(size));
}

void *calloc(size_t count, size_t size)
{
    if (!counts(CALLER))
        return __libc_calloc(count, size);
    return fails(MEMORY) ? (errno = ENOMEM, NULL) : keep(__libc_calloc(count, size));
}

void *realloc(void *old, size_t size)
{
    const int counted = counts(CALLER);
    if (counted && fails(MEMORY))
        return errno = ENOMEM, NULL;
    forget(old); /* before another thread can get the block */
    void *block = __libc_realloc(old, size);
    if (!block && size)
        return counted ? (keep(old), NULL) : NULL;
    return counted ? keep(block) : block;
}

int posix_memalign(void **memory, size_t alignment, size_t size)
{
    const int counted = counts(CALLER);
    if (counted && fails(MEMORY))
        return ENOMEM;
    void *block = __libc_memalign(alignment, size);
    if (!block)
        return ENOMEM;
    *memory = counted ? keep(block) : block;
    return 0;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    if (!counts(CALLER))
        return __libc_memalign(alignment, size);
    return fails(MEMORY) ? (errno = ENOMEM, NULL) : keep(__libc_memalign(alignment, size));
}

void free(void *block)
{
    forget(block);
    __libc_free(block);
}

#define REAL(name)                                                                                                     \
    static __typeof__(&name) real;                                                                                     \
    if (!real)                                                                                                         \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define FAIL return errno = error_number, -1

ssize_t write(int file, const void *data, size_t size)
{
    REAL(write);
    if (fails(FILES))
        FAIL;
    return real(file, data, size > 1 && fails(SHORT_WRITES) ? size / 2 : size);
}

ssize_t pwrite64(int file, const void *data, size_t size, off64_t at)
{
    REAL(pwrite64);
    if (fails(FILES))
        FAIL;
    return real(file, data, size > 1 && fails(SHORT_WRITES) ? size / 2 : size, at);
}

ssize_t writev(int file, const struct iovec *parts, int count)
{
    static ssize_t (*real)(int, const struct iovec *, int);
    if (!real)
        real = (ssize_t(*)(int, const struct iovec *, int))dlsym(RTLD_NEXT, "writev");
    if (fails(FILES))
        FAIL;
    return real(file, parts, count > 1 && fails(SHORT_WRITES) ? 1 : count);
}

ssize_t copy_file_range(int from, off64_t *at, int to, off64_t *begin, size_t size, unsigned flags)
{
    REAL(copy_file_range);
    if (fails(FILES))
        FAIL;
    return real(from, at, to, begin, size > 1 && fails(SHORT_WRITES) ? size / 2 : size, flags);
}

#define OPEN(name, arguments)                                                                                          \
    {                                                                                                                  \
        REAL(name);                                                                                                    \
        mode_t mode = 0;                                                                                               \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                                           \
            va_list list;                                                                                              \
            va_start(list, flags);                                                                                     \
            mode = va_arg(list, mode_t);                                                                               \
            va_end(list);                                                                                              \
        }                                                                                                              \
        if (fails(FILES))                                                                                              \
            FAIL;                                                                                                      \
        return real arguments;                                                                                         \
    }
int open(const char *path, int flags, ...) OPEN(open, (path, flags, mode))
int open64(const char *path, int flags, ...) OPEN(open64, (path, flags, mode))
int openat(int folder, const char *path, int flags, ...) OPEN(openat, (folder, path, flags, mode))
int openat64(int folder, const char *path, int flags, ...) OPEN(openat64, (folder, path, flags, mode))

#define WRAP(name, parameters, arguments)                                                                              \
    int name parameters                                                                                                \
    {                                                                                                                  \
        REAL(name);                                                                                                    \
        if (fails(FILES))                                                                                              \
            FAIL;                                                                                                      \
        return real arguments;                                                                                         \
    }
WRAP(fsync, (int file), (file))
WRAP(fdatasync, (int file), (file))
WRAP(ftruncate64, (int file, off64_t size), (file, size))
WRAP(rename, (const char *from, const char *to), (from, to))
WRAP(renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
WRAP(mkdir, (const char *path, mode_t mode), (path, mode))
WRAP(link, (const char *from, const char *to), (from, to))
