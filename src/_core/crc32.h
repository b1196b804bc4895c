/* CRC-32 as ZIP and zlib have it (reflected polynomial 0xEDB88320), at the speed of memory. */
#ifndef HETERO_CRC32_H
#define HETERO_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Whether this processor has the instruction that ht_crc32 needs. */
int ht_crc32_available(void);

/* The CRC of what gave `crc` (0 for nothing) followed by `size` bytes. Call it only if ht_crc32_available(). */
uint32_t ht_crc32(uint32_t crc, const unsigned char *data, size_t size);

#endif
