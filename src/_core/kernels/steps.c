/* Steps on a team of threads: see steps.h.
 *
 * The state is behind a spin lock, which is held for some ten instructions. A thread without a step that can run spins,
 * because steps take microseconds to milliseconds and waking a thread takes 40 µs; after SPINS it sleeps. Two threads
 * on one processor do not wait for each other for long, because a thread that spins offers its processor to others. */
#include "../system.h"

#include "steps.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    SPINS = 10000,        /* pause instructions before a thread sleeps: about 250 µs */
    YIELD = 64,           /* pauses between two offers of the processor to other threads */
    LOOK_NS = 20000000,   /* a sleeping thread looks so often whether the run must end */
};

typedef struct {
    const ht_steps *steps;
    int32_t *waiting; /* [num_steps]: for how many steps each still waits */
    int32_t *ready;   /* ascending */
    uint8_t *is_busy; /* [num_devices] */
    int32_t num_ready, not_begun, not_done;
    int has_ended;
    atomic_flag lock;
    _Atomic uint32_t changes; /* of the state */
    _Atomic int sleepers;
    ht_mutex sleep;
    ht_condition wake;
} step_run;

static void lock(step_run *run)
{
    for (int spins = 1; atomic_flag_test_and_set_explicit(&run->lock, memory_order_acquire); spins++) {
        ht_pause();
        if (spins % YIELD == 0)
            ht_yield();
    }
}

static void unlock(step_run *run) { atomic_flag_clear_explicit(&run->lock, memory_order_release); }

/* The first ready step of a device that is free, or -1. The caller holds the lock. */
static int32_t take_step(step_run *run)
{
    for (int32_t i = 0; i < run->num_ready; i++) {
        const int32_t step = run->ready[i];
        if (run->is_busy[run->steps->device[step]])
            continue;
        run->is_busy[run->steps->device[step]] = 1;
        run->not_begun--;
        memmove(run->ready + i, run->ready + i + 1, (size_t)(--run->num_ready - i) * sizeof *run->ready);
        return step;
    }
    return -1;
}

static void add_ready(step_run *run, int32_t step)
{
    int32_t i = run->num_ready++;
    for (; i && run->ready[i - 1] > step; i--)
        run->ready[i] = run->ready[i - 1];
    run->ready[i] = step;
}

/* The caller holds the lock. */
static void finish(step_run *run, int32_t step, int has_failed)
{
    const ht_steps *s = run->steps;
    run->is_busy[s->device[step]] = 0;
    run->not_done -= !has_failed;
    run->has_ended |= has_failed || run->not_done == 0;
    for (int32_t i = s->follower_start[step]; i < s->follower_start[step + 1]; i++)
        if (--run->waiting[s->follower[i]] == 0)
            add_ready(run, s->follower[i]);
}

/* Tells the other threads that the state has changed. */
static void announce(step_run *run)
{
    atomic_fetch_add(&run->changes, 1);
    if (atomic_load(&run->sleepers)) {
        ht_mutex_lock(&run->sleep);
        ht_condition_wake_all(&run->wake);
        ht_mutex_unlock(&run->sleep);
    }
}

/* Waits until the state has changed since `before`, or for at most LOOK_NS. */
static void await_change(step_run *run, uint32_t before)
{
    for (int spins = 1; spins <= SPINS; spins++) {
        if (atomic_load(&run->changes) != before)
            return;
        ht_pause();
        if (spins % YIELD == 0)
            ht_yield();
    }
    ht_mutex_lock(&run->sleep);
    atomic_fetch_add(&run->sleepers, 1);
    while (atomic_load(&run->changes) == before)
        if (!ht_condition_wait_for(&run->wake, &run->sleep, LOOK_NS))
            break;
    atomic_fetch_sub(&run->sleepers, 1);
    ht_mutex_unlock(&run->sleep);
}

/* What each thread does until no step is left for it. */
static void take_steps(void *context, int64_t part, int thread)
{
    step_run *run = (step_run *)context;
    (void)part, (void)thread;
    lock(run);
    while (!run->has_ended && run->not_begun) {
        const int32_t step = take_step(run);
        const uint32_t before = atomic_load(&run->changes);
        unlock(run);
        int has_failed = 0;
        if (step < 0)
            await_change(run, before);
        else
            has_failed = run->steps->run(run->steps->context, step);
        const int must_end = ht_stopping();
        lock(run);
        if (step >= 0)
            finish(run, step, has_failed);
        if (must_end)
            run->has_ended = 1;
        if (step >= 0 || must_end)
            announce(run);
    }
    unlock(run);
}

int ht_run_steps(ht_team *team, const ht_steps *steps)
{
    const size_t n = (size_t)steps->num_steps;
    step_run run = {.steps = steps, .not_begun = steps->num_steps, .not_done = steps->num_steps, .lock = ATOMIC_FLAG_INIT};
    run.waiting = (int32_t *)malloc((2 * n + 1) * sizeof *run.waiting);
    run.is_busy = (uint8_t *)calloc((size_t)steps->num_devices + 1, 1);
    if (run.waiting && run.is_busy) {
        run.ready = run.waiting + n;
        memcpy(run.waiting, steps->waits_for, n * sizeof *run.waiting);
        for (int32_t step = 0; step < steps->num_steps; step++)
            if (steps->waits_for[step] == 0)
                add_ready(&run, step);
        ht_mutex_open(&run.sleep);
        ht_condition_open(&run.wake);
        const int threads = ht_team_threads(team);
        ht_team_expect(team, 1);
        ht_parallel(team, threads < steps->num_devices ? threads : steps->num_devices, take_steps, &run);
        ht_condition_close(&run.wake);
        ht_mutex_close(&run.sleep);
    } else
        run.not_done = -1;
    free(run.waiting);
    free(run.is_busy);
    return run.not_done == 0;
}
