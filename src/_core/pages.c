#include "system.h"

#include "pages.h"

#include "kernels/constants.h"

void *ht_allocate_pages(int64_t bytes)
{
    if (bytes < 0 || bytes > INT64_MAX - HT_LARGE_PAGE)
        return NULL;
    if (HT_HAS_LARGE_PAGES && bytes >= HT_LARGE_PAGE) {
        /* The last page is included if at most an eighth of the memory would be unused. */
        const int64_t whole = (bytes + HT_LARGE_PAGE - 1) & -HT_LARGE_PAGE;
        const int64_t size = (whole - bytes) * 8 <= whole ? whole : bytes;
        void *memory = ht_allocate((size_t)HT_LARGE_PAGE, (size_t)size);
        if (memory)
            ht_prefer_large_pages(memory, (size_t)(size & -HT_LARGE_PAGE));
        return memory;
    }
    return ht_allocate(HT_ALIGNMENT, (size_t)(bytes > 0 ? bytes : 1));
}

void ht_free_pages(void *memory) { ht_release(memory); }
