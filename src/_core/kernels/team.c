/* Threads that take the parts of a region: see team.h.
 *
 * A region is published in one 64-bit ticket: its number, and the range of parts that are left. The caller takes parts
 * from the beginning of the range and the other threads from its end, so in successive regions over the same rows a
 * thread finds much of what it reads in its own cache. A thread that has shortened the range owns the part, and the
 * region cannot end before this part is done. Only then does the thread read the rest of the region's description. A
 * late thread finds no part left and has touched nothing.
 *
 * A region costs 0.5 µs while the threads spin: they take regions of 2 µs with a gain of 1.7. Waking a thread that
 * sleeps costs the caller 15 µs and takes 40 µs more, so threads spin for longer during a run than after it, and the
 * caller wakes nobody for a small region. Two threads on one processor never spin for each other. The caller sends
 * such a thread to another processor, which the scheduler of Linux may never do: it moves threads that run, but this
 * one sleeps. */
#include "../system.h"

#include "team.h"

#include <stdatomic.h>
#include <string.h>

enum {
    PART_BITS = 21, /* for each end of the range of parts */
    PAUSES = 2000,  /* pause instructions for which an idle thread spins before it sleeps: about 50 µs */
    RUN_PAUSES = 10000, /* the same during a run: waking a thread costs the caller 15 µs and takes 40 µs more */
    LOOK = 64,      /* pauses between two looks at which processor runs this thread */
    REST_NS = 4000000 /* from one attempt to send threads to other processors to the next: each costs some 30 µs */
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
    const int64_t time = ht_rough_now_ns();
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
    ht_thread id;
    ht_team *team;
    int number;
    _Atomic int processor; /* where it last looked for parts; -1: unknown */
} member;

struct ht_team {
    _Alignas(64) _Atomic uint64_t ticket; /* region << 42 | end << 21 | begin */
    _Alignas(64) _Atomic int64_t done;    /* finished parts of the region */
    _Alignas(64) _Atomic int taken;       /* owned by a run */
    ht_part_fn work;
    void *context;
    ht_watch *watch;
    int64_t next_move; /* when a thread may be sent to another processor again, in nanoseconds */
    int is_small;      /* the next region is not worth waking threads for */
    int threads;       /* including the caller */
    int home;          /* processor reserved for the caller of a pinned team; -1: not pinned */
    unsigned forks;    /* ht_forks when the threads were started */
    uint64_t region;
    _Atomic int processor; /* on which the caller began the region; -1: unknown */
    _Atomic int sleepers, closing;
    ht_mutex lock;
    ht_condition wake;
    member others[];
};

/* Two threads on one processor must not wait for each other by spinning. */
static inline int is_same(int processor, int other) { return processor >= 0 && processor == other; }

/* How many other threads of the team were last on this processor. */
static int num_here(ht_team *team)
{
    const int processor = ht_this_processor();
    int num = 0;
    for (int i = 0; i < team->threads - 1; i++)
        num += is_same(processor, atomic_load_explicit(&team->others[i].processor, memory_order_relaxed));
    return num;
}

static void wake_all(ht_team *team)
{
    ht_mutex_lock(&team->lock);
    ht_condition_wake_all(&team->wake);
    ht_mutex_unlock(&team->lock);
}

/* Sends threads that were last on this processor to others, and wakes them. Such a thread sleeps, so the system's
 * scheduler, which balances running threads, leaves it here although another processor is idle. It may come back later. */
static void wake_elsewhere(ht_team *team)
{
#if defined(__linux__)
    const int processor = ht_this_processor();
    for (int i = 0; i < team->threads - 1; i++) {
        const member *other = &team->others[i];
        cpu_set_t allowed, rest;
        if (!is_same(processor, atomic_load_explicit(&other->processor, memory_order_relaxed)) ||
            processor >= CPU_SETSIZE || pthread_getaffinity_np(other->id, sizeof allowed, &allowed) != 0)
            continue;
        rest = allowed;
        CPU_CLR(processor, &rest);
        if (CPU_COUNT(&rest) == 0 || pthread_setaffinity_np(other->id, sizeof rest, &rest) != 0)
            continue;
        wake_all(team);
        (void)pthread_setaffinity_np(other->id, sizeof allowed, &allowed);
    }
#else
    (void)team;
#endif
}

/* Wakes sleeping threads that can run beside the caller. */
static void wake(ht_team *team)
{
    const int here = num_here(team);
    if (here < team->threads - 1)
        wake_all(team);
    if (here > 0) {
        const int64_t time = ht_rough_now_ns();
        if (time >= team->next_move) {
            team->next_move = time + REST_NS;
            wake_elsewhere(team);
        }
    }
}

static inline int64_t begin_of(uint64_t ticket) { return (int64_t)(ticket & PART_MASK); }
static inline int64_t end_of(uint64_t ticket) { return (int64_t)(ticket >> PART_BITS & PART_MASK); }
static inline int has_parts(uint64_t ticket) { return begin_of(ticket) < end_of(ticket); }

/* Takes a part of the current region; -1 if none is left. */
static int64_t take_part(ht_team *team, int thread)
{
    uint64_t ticket = atomic_load(&team->ticket);
    while (has_parts(ticket)) {
        const uint64_t left = thread > 0 ? ticket - ((uint64_t)1 << PART_BITS) : ticket + 1;
        if (atomic_compare_exchange_weak(&team->ticket, &ticket, left))
            return thread > 0 ? end_of(left) : begin_of(ticket);
    }
    return -1;
}

/* Takes parts of the current region until none is left. */
static void take_parts(ht_team *team, int thread)
{
    for (int64_t part; (part = take_part(team, thread)) >= 0;) {
        if (thread > 0)
            watched = team->watch;
        if (!ht_stopping())
            team->work(team->context, part, thread);
        if (thread > 0)
            watched = NULL; /* once this part is done, the run may end and free its watch */
        atomic_fetch_add(&team->done, 1);
    }
}

/* Waits for a moment without sleeping, unless the caller needs this processor. */
static void spin(ht_team *team, member *self)
{
    for (int pauses = 0; pauses < PAUSES || (pauses < RUN_PAUSES && atomic_load(&team->taken)); pauses++) {
        if (has_parts(atomic_load_explicit(&team->ticket, memory_order_relaxed)))
            return;
        if (pauses % LOOK == 0) {
            const int processor = ht_this_processor();
            atomic_store_explicit(&self->processor, processor, memory_order_relaxed);
            if (is_same(processor, atomic_load_explicit(&team->processor, memory_order_relaxed)))
                return;
        }
        ht_pause();
    }
}

static HT_THREAD_FUNCTION(serve)
{
    member *self = (member *)argument;
    ht_team *team = self->team;
    is_member = 1;
    for (;;) {
        spin(team, self);
        if (!has_parts(atomic_load(&team->ticket))) {
            ht_mutex_lock(&team->lock);
            atomic_fetch_add(&team->sleepers, 1);
            while (!has_parts(atomic_load(&team->ticket)) && !atomic_load(&team->closing))
                ht_condition_wait(&team->wake, &team->lock);
            atomic_fetch_sub(&team->sleepers, 1);
            ht_mutex_unlock(&team->lock);
        }
        if (atomic_load(&team->closing))
            return 0;
        atomic_store_explicit(&self->processor, ht_this_processor(), memory_order_relaxed);
        take_parts(team, self->number);
    }
}

ht_team *ht_team_open(int threads)
{
    threads = threads < 1 ? 1 : threads > HT_MAX_THREADS ? HT_MAX_THREADS : threads;
    size_t size = sizeof(ht_team) + (size_t)threads * sizeof(member);
    size = (size + 63) / 64 * 64;
    ht_team *team = (ht_team *)ht_allocate(64, size);
    if (!team)
        return NULL;
    memset(team, 0, size);
    team->threads = 1;
    team->home = -1;
    team->processor = -1;
    team->forks = ht_forks();
    ht_mutex_open(&team->lock);
    ht_condition_open(&team->wake);
    for (; team->threads < threads; team->threads++) {
        member *other = &team->others[team->threads - 1];
        other->team = team;
        other->number = team->threads;
        atomic_init(&other->processor, -1);
        if (!ht_thread_start(&other->id, serve, other))
            break;
    }
    return team;
}

static int is_of_this_process(const ht_team *team) { return team->forks == ht_forks(); }

void ht_team_close(ht_team *team)
{
    if (!team)
        return;
    if (is_of_this_process(team)) {
        ht_mutex_lock(&team->lock);
        atomic_store(&team->closing, 1);
        ht_condition_wake_all(&team->wake);
        ht_mutex_unlock(&team->lock);
        for (int i = 0; i < team->threads - 1; i++)
            ht_thread_join(team->others[i].id);
        ht_condition_close(&team->wake);
        ht_mutex_close(&team->lock);
    }
    ht_release(team);
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
    return team->home >= 0 && ht_this_processor() == team->home;
#else
    (void)team;
    return 0;
#endif
}

void ht_team_expect(ht_team *team, int is_worth_waking) { team->is_small = !is_worth_waking; }

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
    atomic_store_explicit(&team->processor, ht_this_processor(), memory_order_relaxed);
    atomic_store(&team->done, 0);
    atomic_store(&team->ticket, ++team->region << (2 * PART_BITS) | (uint64_t)parts << PART_BITS);
    if (!team->is_small && atomic_load(&team->sleepers))
        wake(team);
    team->is_small = 0;
    take_parts(team, 0);
    /* Another thread still runs a part. If it needs this processor, or has been long, let others run. */
    for (int pauses = 0; atomic_load(&team->done) < parts; pauses++)
        if (pauses >= PAUSES || (pauses % LOOK == 0 && num_here(team) > 0))
            (void)ht_yield();
        else
            ht_pause();
}
