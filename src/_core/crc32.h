/* CRC-32 as in ZIP and zlib (reflected polynomial 0xEDB88320), at memory speed. */
#ifndef HETERO_CRC32_H
#define HETERO_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Whether this processor supports the instructions that ht_crc32 needs. */
int ht_crc32_available(void);

/* Continues the CRC `crc` (0 at the start) over `size` bytes. Call it only if ht_crc32_available(). */
uint32_t ht_crc32(uint32_t crc, const unsigned char *data, size_t size);

#endif
