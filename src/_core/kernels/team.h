/* A team of threads that kernels split their work over.
 *
 * A run of a program enters a team and then owns it. A run that finds the team taken continues without it, with the
 * same results, because no kernel's results depend on a split. Between the regions of a run the other threads spin for
 * a moment, then sleep. A child of fork() has none of the threads, so there every region runs in the caller. */
#ifndef HETERO_TEAM_H
#define HETERO_TEAM_H

#include <stdint.h>

#define HT_MAX_THREADS 1024
#define HT_MAX_PARTS (1 << 20) /* parts of one region: PART_BITS in team.c can count them */

typedef struct ht_team ht_team;

/* `threads`: the total, including the caller's, 1 to HT_MAX_THREADS. Returns NULL without memory; the team is smaller if the
 * system refuses to start threads. */
ht_team *ht_team_open(int threads);
/* No run may use the team. */
void ht_team_close(ht_team *team);
int ht_team_threads(const ht_team *team);
/* Pins each of the team's own threads to a processor, by the system's numbers. processors[0] is for the caller, which
 * must pin itself. There are as many processors as requested threads. Returns 0 without memory. Pins that the system
 * refuses are skipped. Call it before any run. */
int ht_team_pin(ht_team *team, const int *processors);
/* Whether the calling thread runs on the processor that a pinned team reserves for its caller. */
int ht_team_is_near(const ht_team *team);

/* Whether the caller now owns the team, until it leaves. */
int ht_team_enter(ht_team *team);
void ht_team_leave(ht_team *team);

/* How a run learns that it must end early: on request (`stop`), or because `look` says so. A kernel that must stop
 * returns as soon as it can; its results are then undefined. */
typedef _Atomic int ht_flag;
typedef struct {
    ht_flag *stop;        /* above 0: end; set by any thread. Below: -n, end at the n-th check from now on. Or NULL */
    int (*look)(void *);  /* called on the run's own thread, at most every HT_LOOK_NS; nonzero: end. Or NULL */
    void *context;        /* argument of `look` */
    ht_flag ended;        /* a check has returned that the run must end, so work may be missing */
    int64_t next_look;    /* nanoseconds; 0: not set yet */
} ht_watch;
#define HT_LOOK_NS 40000000 /* 40 ms: with the longest part of a kernel and a thread switch, less than 100 ms */

/* Whether a run must end. Cheap enough for every call of a kernel. */
static inline int ht_watch_ended(const ht_watch *watch)
{
    return watch->ended || (watch->stop && *watch->stop > 0);
}

static inline void ht_flag_set(ht_flag *flag, int value) { *flag = value; }

/* Makes `watch` the watch of the calling thread's run (NULL: none); returns the previous one. */
ht_watch *ht_watch_exchange(ht_watch *watch);
/* Whether the run that the calling thread works for must end; this never changes back. Costs about 10 ns, so check it
 * only after microseconds of work. */
int ht_stopping(void);

/* Whether the next region is worth waking threads that sleep; without this, it is. Others take part in any case. */
void ht_team_expect(ht_team *team, int is_worth_waking);

/* Calls work(context, part, thread) once for each part, 0 to parts - 1, in any order and on any thread. thread is below
 * ht_team_threads(team); concurrent calls have different ones. Returns when all parts are done; if the run must end
 * (ht_stopping), parts that have not begun are skipped. team: NULL, or entered by the caller. Must not be called from
 * within work. parts: at most HT_MAX_PARTS. */
typedef void (*ht_part_fn)(void *context, int64_t part, int thread);
void ht_parallel(ht_team *team, int64_t parts, ht_part_fn work, void *context);

/* For a thread that waits without sleeping. */
static inline void ht_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
