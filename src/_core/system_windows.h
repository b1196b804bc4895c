/* Windows: see system.h. */
#ifndef HETERO_SYSTEM_WINDOWS_H
#define HETERO_SYSTEM_WINDOWS_H

#define WIN32_LEAN_AND_MEAN
#define NOMINMAX
#include <windows.h>

#include <malloc.h>
#include <process.h>
#include <stdint.h>
#include <stdlib.h>

static inline void *ht_allocate(size_t alignment, size_t bytes) { return _aligned_malloc(bytes, alignment); }
static inline void ht_release(void *memory) { _aligned_free(memory); }

/* Large pages require a privilege that only administrators can grant. */
#define HT_HAS_LARGE_PAGES 0
static inline void ht_prefer_large_pages(void *memory, size_t bytes) { (void)memory, (void)bytes; }

static inline int64_t ht_physical_memory(void)
{
    MEMORYSTATUSEX status = {.dwLength = sizeof status};
    return GlobalMemoryStatusEx(&status) ? (int64_t)status.ullTotalPhys : INT64_MAX;
}

static inline int64_t ht_now_ns(void)
{
    LARGE_INTEGER ticks, frequency; /* ticks per second, 10 million on most machines */
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&frequency);
    const int64_t seconds = ticks.QuadPart / frequency.QuadPart, rest = ticks.QuadPart % frequency.QuadPart;
    return seconds * 1000000000 + rest * 1000000000 / frequency.QuadPart;
}

static inline int64_t ht_rough_now_ns(void) { return (int64_t)GetTickCount64() * 1000000; }

static inline int64_t ht_thread_cpu_ns(void)
{
    FILETIME begin, end, kernel, user; /* durations in 100 ns, in two halves */
    if (!GetThreadTimes(GetCurrentThread(), &begin, &end, &kernel, &user))
        return 0;
    return (((int64_t)kernel.dwHighDateTime + user.dwHighDateTime) * ((int64_t)1 << 32) + kernel.dwLowDateTime +
            user.dwLowDateTime) * 100;
}

typedef SRWLOCK ht_mutex;
typedef CONDITION_VARIABLE ht_condition;
typedef HANDLE ht_thread;
#define HT_THREAD_FUNCTION(name) unsigned __stdcall name(void *argument)

static inline void ht_mutex_open(ht_mutex *mutex) { InitializeSRWLock(mutex); }
static inline void ht_mutex_close(ht_mutex *mutex) { (void)mutex; }
static inline void ht_mutex_lock(ht_mutex *mutex) { AcquireSRWLockExclusive(mutex); }
static inline void ht_mutex_unlock(ht_mutex *mutex) { ReleaseSRWLockExclusive(mutex); }
static inline void ht_condition_open(ht_condition *condition) { InitializeConditionVariable(condition); }
static inline void ht_condition_close(ht_condition *condition) { (void)condition; }
static inline void ht_condition_wake_all(ht_condition *condition) { WakeAllConditionVariable(condition); }

static inline void ht_condition_wait(ht_condition *condition, ht_mutex *mutex)
{
    (void)SleepConditionVariableSRW(condition, mutex, INFINITE, 0);
}

static inline int ht_condition_wait_for(ht_condition *condition, ht_mutex *mutex, int64_t ns)
{
    return SleepConditionVariableSRW(condition, mutex, (DWORD)((ns + 999999) / 1000000), 0) != 0;
}

static inline int ht_thread_start(ht_thread *thread, unsigned(__stdcall *function)(void *), void *argument)
{
    *thread = (HANDLE)_beginthreadex(NULL, 0, function, argument, 0, NULL);
    return *thread != NULL;
}

static inline void ht_thread_join(ht_thread thread)
{
    (void)WaitForSingleObject(thread, INFINITE);
    (void)CloseHandle(thread);
}

static inline void ht_yield(void) { (void)SwitchToThread(); }
static inline int ht_this_processor(void) { return (int)GetCurrentProcessorNumber(); }
static inline unsigned ht_forks(void) { return 0; }

#endif
