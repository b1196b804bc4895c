/* What the core needs of the operating system. One file for each family of systems implements it:
 *
 * ht_allocate, ht_release       memory aligned to a power of two, at least 16
 * ht_prefer_large_pages         a hint for memory aligned to HT_LARGE_PAGE; HT_HAS_LARGE_PAGES: whether it has an effect
 * ht_physical_memory            bytes of the machine; INT64_MAX if unknown
 * ht_now_ns, ht_rough_now_ns    time of a monotonic clock; rough: cheaper, and up to 16 ms behind
 * ht_thread_cpu_ns              processor time of the calling thread
 * ht_mutex_*, ht_condition_*    ht_condition_wait_for returns 0 if `ns` passed
 * ht_thread_start, _join        starts function(argument), declared as HT_THREAD_FUNCTION; 0 if the system refuses
 * ht_yield                      lets another thread run on this processor
 * ht_this_processor             number of the processor of the calling thread, or -1
 * ht_forks                      forks of this process and its ancestors since the first call
 *
 * Include this file first: it selects features of the C library. */
#ifndef HETERO_SYSTEM_H
#define HETERO_SYSTEM_H

#define HT_LARGE_PAGE ((int64_t)1 << 21) /* bytes, on x86-64 and most ARM64 systems */

#if defined(_WIN32)
#include "system_windows.h"
#else
#include "system_posix.h"
#endif

#endif
