/* The steps of an inference on a team of threads: steps on different devices run at the same time.
 *
 * A device runs one step at a time; of its ready steps, the first by number. Each thread takes the first step that can
 * run, so a thread that finishes a step continues with what has become ready, and one thread alone runs all steps. */
#ifndef HETERO_STEPS_H
#define HETERO_STEPS_H

#include "team.h"

typedef struct {
    int32_t num_steps, num_devices;
    const int32_t *device;                    /* [num_steps] */
    const int32_t *waits_for;                 /* [num_steps]: for how many steps each waits */
    const int32_t *follower_start, *follower; /* rows of the steps that wait for each */
    int (*run)(void *context, int32_t step);  /* 0: done; otherwise no further step begins */
    void *context;
} ht_steps;

/* Runs the steps. Returns 1 if all are done; 0 if one failed, if the run must end (ht_stopping), or without memory.
 * team: entered by the caller; its threads beyond the number of devices do nothing. */
int ht_run_steps(ht_team *team, const ht_steps *steps);

#endif
