/* Threads that take the parts of a region: see team.h.
 *
 * A region is published in one 64-bit ticket: its number, how many parts it has, and how many are taken. A thread that
 * increments a ticket with parts left owns the part of that number, and the region cannot end before this part is done.
 * Only then does the thread read the rest of the region's description. A late thread finds no part left and has touched
 * nothing. */
#define _GNU_SOURCE
#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PART_BITS = 21, /* for the count of parts, and for parts taken, which each late thread increments by one */
    PAUSES = 2000,  /* pause instructions for which an idle thread spins before it sleeps: about 50 µs */
};
static const uint64_t PART_MASK = ((uint64_t)1 << PART_BITS) - 1;

static _Thread_local ht_watch *watched; /* the watch of this thread's run */
static _Thread_local int is_member;     /* of a team: it works for the runs of other threads */

ht_watch *ht_watch_exchange(ht_watch *watch)
{
    ht_watch *before = watched;
    watched = watch;
    return before;
}

static int64_t now(void)
{
    struct timespec time;
#ifdef CLOCK_MONOTONIC_COARSE
    (void)clock_gettime(CLOCK_MONOTONIC_COARSE, &time);
#else
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
#endif
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

int ht_stopping(void)
{
    ht_watch *watch = watched;
    if (!watch)
        return 0;
    if (watch->stop && *watch->stop < 0 && atomic_fetch_add(watch->stop, 1) == -1)
        *watch->stop = 1;
    if (ht_watch_ended(watch)) {
        watch->ended = 1;
        return 1;
    }
    if (is_member || !watch->look)
        return 0;
    const int64_t time = now();
    if (time < watch->next_look)
        return 0;
    const int is_first = watch->next_look == 0;
    watch->next_look = time + HT_LOOK_NS;
    if (is_first || !watch->look(watch->context))
        return 0;
    watch->ended = 1;
    return 1;
}

typedef struct {
    pthread_t id;
    ht_team *team;
    int number;
} member;

struct ht_team {
    _Alignas(64) _Atomic uint64_t ticket; /* region << 42 | parts << 21 | taken */
    _Alignas(64) _Atomic int64_t done;    /* finished parts of the region */
    _Alignas(64) _Atomic int taken;       /* owned by a run */
    ht_part_fn work;
    void *context;
    ht_watch *watch;
    int threads;       /* including the caller */
    int home;          /* processor reserved for the caller of a pinned team; -1: not pinned */
    unsigned forks;    /* value of the counter below when the threads were started */
    uint64_t region;
    _Atomic int sleepers, closing;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    member others[];
};

static _Atomic unsigned forks; /* forks of this process and its ancestors */
static pthread_once_t counting = PTHREAD_ONCE_INIT;

static void count_fork(void) { atomic_fetch_add(&forks, 1); }
static void count_forks(void) { (void)pthread_atfork(NULL, NULL, count_fork); }

static inline void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

static inline int has_parts(uint64_t ticket) { return (ticket & PART_MASK) < (ticket >> PART_BITS & PART_MASK); }

/* Takes parts of the current region until none is left. */
static void take_parts(ht_team *team, int thread)
{
    while (has_parts(atomic_load(&team->ticket))) {
        const uint64_t ticket = atomic_fetch_add(&team->ticket, 1);
        if (!has_parts(ticket))
            return;
        if (thread > 0)
            watched = team->watch;
        if (!ht_stopping())
            team->work(team->context, (int64_t)(ticket & PART_MASK), thread);
        if (thread > 0)
            watched = NULL; /* once this part is done, the run may end and free its watch */
        atomic_fetch_add(&team->done, 1);
    }
}

static void *serve(void *argument)
{
    const member *self = (const member *)argument;
    ht_team *team = self->team;
    is_member = 1;
    for (;;) {
        int pauses = 0;
        while (pauses < PAUSES && !has_parts(atomic_load_explicit(&team->ticket, memory_order_relaxed))) {
            pause_briefly();
            pauses++;
        }
        if (pauses == PAUSES) {
            pthread_mutex_lock(&team->lock);
            atomic_fetch_add(&team->sleepers, 1);
            while (!has_parts(atomic_load(&team->ticket)) && !atomic_load(&team->closing))
                pthread_cond_wait(&team->wake, &team->lock);
            atomic_fetch_sub(&team->sleepers, 1);
            pthread_mutex_unlock(&team->lock);
        }
        if (atomic_load(&team->closing))
            return NULL;
        take_parts(team, self->number);
    }
}

ht_team *ht_team_open(int threads)
{
    threads = threads < 1 ? 1 : threads > HT_MAX_THREADS ? HT_MAX_THREADS : threads;
    size_t size = sizeof(ht_team) + (size_t)threads * sizeof(member);
    size = (size + 63) / 64 * 64;
    ht_team *team = (ht_team *)aligned_alloc(64, size);
    if (!team)
        return NULL;
    memset(team, 0, size);
    pthread_once(&counting, count_forks);
    team->threads = 1;
    team->home = -1;
    team->forks = atomic_load(&forks);
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->wake, NULL);
    /* Signals are left to the threads of the application. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; team->threads < threads; team->threads++) {
        member *other = &team->others[team->threads - 1];
        other->team = team;
        other->number = team->threads;
        if (pthread_create(&other->id, NULL, serve, other) != 0)
            break;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return team;
}

static int is_of_this_process(const ht_team *team) { return team->forks == atomic_load(&forks); }

void ht_team_close(ht_team *team)
{
    if (!team)
        return;
    if (is_of_this_process(team)) {
        pthread_mutex_lock(&team->lock);
        atomic_store(&team->closing, 1);
        pthread_cond_broadcast(&team->wake);
        pthread_mutex_unlock(&team->lock);
        for (int i = 0; i < team->threads - 1; i++)
            pthread_join(team->others[i].id, NULL);
        pthread_cond_destroy(&team->wake);
        pthread_mutex_destroy(&team->lock);
    }
    free(team);
}

int ht_team_threads(const ht_team *team) { return team->threads; }

int ht_team_pin(ht_team *team, const int *processors)
{
#if defined(__linux__)
    for (int i = 0; i < team->threads - 1; i++) {
        const int processor = processors[i + 1];
        cpu_set_t *set = processor < 0 ? NULL : CPU_ALLOC(processor + 1);
        if (!set)
            return 0;
        const size_t size = CPU_ALLOC_SIZE(processor + 1);
        CPU_ZERO_S(size, set);
        CPU_SET_S(processor, size, set);
        (void)pthread_setaffinity_np(team->others[i].id, size, set);
        CPU_FREE(set);
    }
    team->home = processors[0];
#else
    (void)team, (void)processors;
#endif
    return 1;
}

int ht_team_is_near(const ht_team *team)
{
#if defined(__linux__)
    return team->home >= 0 && sched_getcpu() == team->home;
#else
    (void)team;
    return 0;
#endif
}

int ht_team_enter(ht_team *team) { return !atomic_exchange(&team->taken, 1); }

void ht_team_leave(ht_team *team) { atomic_store(&team->taken, 0); }

void ht_parallel(ht_team *team, int64_t parts, ht_part_fn work, void *context)
{
    if (!team || team->threads < 2 || parts < 2 || !is_of_this_process(team)) {
        for (int64_t part = 0; part < parts && (parts == 1 || !ht_stopping()); part++)
            work(context, part, 0);
        return;
    }
    team->work = work;
    team->context = context;
    team->watch = watched;
    atomic_store(&team->done, 0);
    atomic_store(&team->ticket, ++team->region << (2 * PART_BITS) | (uint64_t)parts << PART_BITS);
    if (atomic_load(&team->sleepers)) {
        pthread_mutex_lock(&team->lock);
        pthread_cond_broadcast(&team->wake);
        pthread_mutex_unlock(&team->lock);
    }
    take_parts(team, 0);
    for (int pauses = 0; atomic_load(&team->done) < parts; pauses++)
        if (pauses < PAUSES)
            pause_briefly();
        else
            (void)sched_yield(); /* another thread on this machine uses the core that a part needs */
}
