/* Written by the kernel `custom` to the start of its scratch memory when it returns HT_ERR_CUSTOM. */
#ifndef HETERO_KERNEL_CUSTOM_H
#define HETERO_KERNEL_CUSTOM_H

#include "kernel.h"

typedef struct {
    int32_t status;    /* the function's return value */
    char message[252]; /* NUL-terminated */
} ht_custom_note;

#endif
