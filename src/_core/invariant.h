/* HT_ASSERT(condition): an invariant that holds unless this library has a bug. The checked build (HETERO_CHECKED in
 * CMakeLists.txt) evaluates it and aborts with its text and location; the release build compiles it but never evaluates
 * it. Errors of a caller are not invariants: functions report them by their status. */
#ifndef HETERO_INVARIANT_H
#define HETERO_INVARIANT_H

#ifdef HETERO_CHECKED
#include <stdio.h>
#include <stdlib.h>
#define HT_ASSERT(condition)                                                                       \
    ((condition) ? (void)0                                                                         \
                 : (fprintf(stderr, "%s:%d: assertion failed: %s\n", __FILE__, __LINE__, #condition), abort()))
#else
#define HT_ASSERT(condition) ((void)sizeof((condition) ? 1 : 0))
#endif

#endif
