#define _DEFAULT_SOURCE /* madvise */
#define _POSIX_C_SOURCE 200809L

#include "pages.h"

#include "kernels/constants.h"

#include <stddef.h>
#include <stdlib.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#define LARGE ((int64_t)2 << 20)

void *ht_allocate_pages(int64_t bytes)
{
    if (bytes < 0 || bytes > INT64_MAX - LARGE)
        return NULL;
    void *memory = NULL;
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    /* The last page is included if at most an eighth of the memory would be unused. */
    const int64_t whole = (bytes + LARGE - 1) & -LARGE, size = (whole - bytes) * 8 <= whole ? whole : bytes;
    if (bytes >= LARGE) {
        if (posix_memalign(&memory, (size_t)LARGE, (size_t)size) != 0)
            return NULL;
        madvise(memory, (size_t)(size & -LARGE), MADV_HUGEPAGE); /* only a hint: failure is harmless */
        return memory;
    }
#endif
    return posix_memalign(&memory, HT_ALIGNMENT, (size_t)(bytes > 0 ? bytes : 1)) == 0 ? memory : NULL;
}
