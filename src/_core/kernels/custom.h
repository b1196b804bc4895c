/* What the kernel `custom` leaves at the start of its scratch memory where it returns HT_ERR_CUSTOM. */
#ifndef HETERO_KERNEL_CUSTOM_H
#define HETERO_KERNEL_CUSTOM_H

#include "kernel.h"

typedef struct {
    int32_t status;    /* what the function returned */
    char message[252]; /* ended by a NUL */
} ht_custom_note;

#endif
