/* Linux, macOS and other POSIX systems: see system.h. */
#ifndef HETERO_SYSTEM_POSIX_H
#define HETERO_SYSTEM_POSIX_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* madvise, sched_getcpu, pthread_setaffinity_np */
#endif

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#if defined(__linux__)
#include <sys/mman.h>
#endif

static inline void *ht_allocate(size_t alignment, size_t bytes)
{
    void *memory = NULL;
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : NULL;
}

static inline void ht_release(void *memory) { free(memory); }

#if defined(__linux__) && defined(MADV_HUGEPAGE)
#define HT_HAS_LARGE_PAGES 1
static inline void ht_prefer_large_pages(void *memory, size_t bytes) { (void)madvise(memory, bytes, MADV_HUGEPAGE); }
#else
#define HT_HAS_LARGE_PAGES 0
static inline void ht_prefer_large_pages(void *memory, size_t bytes) { (void)memory, (void)bytes; }
#endif

static inline int64_t ht_physical_memory(void)
{
    const int64_t pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? pages * size : INT64_MAX;
}

static inline int64_t ht_clock_ns(clockid_t clock)
{
    struct timespec time;
    (void)clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static inline int64_t ht_now_ns(void) { return ht_clock_ns(CLOCK_MONOTONIC); }
static inline int64_t ht_thread_cpu_ns(void) { return ht_clock_ns(CLOCK_THREAD_CPUTIME_ID); }
#if defined(CLOCK_MONOTONIC_COARSE)
static inline int64_t ht_rough_now_ns(void) { return ht_clock_ns(CLOCK_MONOTONIC_COARSE); }
#else
static inline int64_t ht_rough_now_ns(void) { return ht_now_ns(); }
#endif

typedef pthread_mutex_t ht_mutex;
typedef pthread_cond_t ht_condition;
typedef pthread_t ht_thread;
#define HT_THREAD_FUNCTION(name) void *name(void *argument)

static inline void ht_mutex_open(ht_mutex *mutex) { pthread_mutex_init(mutex, NULL); }
static inline void ht_mutex_close(ht_mutex *mutex) { pthread_mutex_destroy(mutex); }
static inline void ht_mutex_lock(ht_mutex *mutex) { pthread_mutex_lock(mutex); }
static inline void ht_mutex_unlock(ht_mutex *mutex) { pthread_mutex_unlock(mutex); }
static inline void ht_condition_open(ht_condition *condition) { pthread_cond_init(condition, NULL); }
static inline void ht_condition_close(ht_condition *condition) { pthread_cond_destroy(condition); }
static inline void ht_condition_wake_all(ht_condition *condition) { pthread_cond_broadcast(condition); }
static inline void ht_condition_wait(ht_condition *condition, ht_mutex *mutex) { pthread_cond_wait(condition, mutex); }

static inline int ht_condition_wait_for(ht_condition *condition, ht_mutex *mutex, int64_t ns)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    ns += until.tv_nsec;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    return pthread_cond_timedwait(condition, mutex, &until) == 0;
}

/* Signals are left to the threads of the application. */
static inline int ht_thread_start(ht_thread *thread, void *(*function)(void *), void *argument)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int has_started = pthread_create(thread, NULL, function, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return has_started;
}

static inline void ht_thread_join(ht_thread thread) { pthread_join(thread, NULL); }
static inline void ht_yield(void) { (void)sched_yield(); }

static inline int ht_this_processor(void)
{
#if defined(__linux__)
    return sched_getcpu();
#else
    return -1;
#endif
}

static _Atomic unsigned ht_num_forks;
static pthread_once_t ht_counting_forks = PTHREAD_ONCE_INIT;
static inline void ht_count_fork(void) { atomic_fetch_add(&ht_num_forks, 1); }
static inline void ht_count_forks(void) { (void)pthread_atfork(NULL, NULL, ht_count_fork); }

static inline unsigned ht_forks(void)
{
    pthread_once(&ht_counting_forks, ht_count_forks);
    return atomic_load(&ht_num_forks);
}

#endif
