# Types only. The docstrings are in src/_core/_checksum.pyx, where help() finds them.

from typing_extensions import Buffer

def crc32(data: Buffer, value: int = 0) -> int: ...
