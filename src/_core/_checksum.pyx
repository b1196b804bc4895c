"""CRC-32, as in ZIP files, at memory speed; see crc32.c."""

from libc.stdint cimport uint32_t

import zlib


cdef extern from "crc32.h" nogil:
    bint ht_crc32_available()
    uint32_t ht_crc32(uint32_t crc, const unsigned char *data, size_t size)


cdef bint _fast = ht_crc32_available()


def crc32(const unsigned char[::1] data not None, uint32_t value=0):
    """As ``zlib.crc32``: continues the CRC ``value`` over ``data``. Releases the GIL."""
    cdef size_t size = data.shape[0]
    if not _fast:
        return zlib.crc32(data, value)
    if size:
        with nogil:
            value = ht_crc32(value, &data[0], size)
    return value
