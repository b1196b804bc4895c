/* Every kernel, once: X(name). registry.c makes the tables from it; <name>.c or its family's file defines it. */
#define HT_KERNELS(X) \
    X(identity)
