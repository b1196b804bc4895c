/* A team of threads that kernels split their work over.
 *
 * A run of a program enters a team, so that one run at a time has it; a run that finds it taken goes on alone, with the
 * same results, since no kernel lets them depend on a split. Between the regions of a run the others wait actively for
 * a moment, then they sleep. A child of fork() has none of the threads: there every region runs in the caller. */
#ifndef HETERO_TEAM_H
#define HETERO_TEAM_H

#include <stdint.h>

#define HT_MAX_PARTS (1 << 20) /* parts of one region: half of what PART_BITS in team.c can count */

typedef struct ht_team ht_team;

/* `threads` in all, the caller's among them: 1 to 1024. NULL without memory; fewer threads where the system gives no
 * more. */
ht_team *ht_team_open(int threads);
/* No run may be in it. */
void ht_team_close(ht_team *team);
int ht_team_threads(const ht_team *team);
/* Keeps the team's own threads on a processor each, by the system's numbers: processors[0] is the caller's, who sees to
 * that himself. There are as many as threads were asked for. Returns 0 without memory. What the system does not allow is
 * left as it is. Before any run. */
int ht_team_pin(ht_team *team, const int *processors);
/* Whether the calling thread is on the processor that a pinned team left to its caller. */
int ht_team_is_near(const ht_team *team);

/* Whether the team is the caller's now, until it leaves. */
int ht_team_enter(ht_team *team);
void ht_team_leave(ht_team *team);

/* What a run looks at to end early: on request (`stop`), or as `look` finds. A kernel that is asked to stop returns as
 * soon as it can, with results that nobody may use. */
typedef _Atomic int ht_flag;
typedef struct {
    ht_flag *stop;        /* above 0: end; set by any thread. Below: -n, end at the n-th look from now on. Or NULL */
    int (*look)(void *);  /* called on the run's own thread, at most every HT_LOOK_NS; nonzero: end. Or NULL */
    void *context;        /* of `look` */
    ht_flag ended;        /* somebody has seen that it is to end, and may have left out work */
    int64_t next_look;    /* nanoseconds; 0: not set yet */
} ht_watch;
#define HT_LOOK_NS 40000000 /* 40 ms: with the longest part of a kernel and a switch of threads, less than 100 ms */

/* Whether a run is to end. Cheap enough for every call of a kernel. */
static inline int ht_watch_ended(const ht_watch *watch)
{
    return watch->ended || (watch->stop && *watch->stop > 0);
}

static inline void ht_flag_set(ht_flag *flag, int value) { *flag = value; }

/* Has the calling thread's run watched by `watch` (NULL: by none); returns what watched it before. */
ht_watch *ht_watch_exchange(ht_watch *watch);
/* Whether the run that the calling thread works for is to end; once it is, it stays so. Costs about 10 ns: for work of
 * microseconds. */
int ht_stopping(void);

/* Calls work(context, part, thread) once for each part, 0 to parts - 1, in any order and on any thread; thread is below
 * ht_team_threads(team), and no two calls at one time have the same. Returns when all are done; a run that is to end
 * (ht_stopping) leaves out the parts that have not begun. team: NULL, or entered by the
 * caller; not from within work. parts: at most HT_MAX_PARTS. */
typedef void (*ht_part_fn)(void *context, int64_t part, int thread);
void ht_parallel(ht_team *team, int64_t parts, ht_part_fn work, void *context);

#endif
