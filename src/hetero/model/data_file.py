"""The data file of a saved model, which stores its larger tensors one after the other."""

from __future__ import annotations

from ..base.files import write_all
from .external import ExternalFiles, Location
from .wire import encode_field, encode_number, encode_string_entry

__all__ = ["DataFile"]

_EXTERNAL_DATA, _DATA_LOCATION, _EXTERNAL = 13, 14, 1

# Bytes. Tensors are aligned for any element type and to cache lines. Large tensors start at a page, so that they can be
# mapped separately, and file systems can share their blocks between files.
_ALIGNMENT, _PAGE = 64, 4096
_PAGED_BYTES = 1 << 20


class DataFile:
    """The layout of a data file. ``name``: the file's name, in the model's folder. ``at_least``: the minimum size, in
    B, of tensors stored in it. Empty tensors are not, because a file without data is not written."""

    def __init__(self, name: str, at_least: int) -> None:
        self.name = name
        self.at_least = max(at_least, 1)
        self.size = 0
        self._pieces: list[tuple[int, Location | memoryview, int]] = []
        self._placed: dict[Location, int] = {}

    def place(self, source: Location | memoryview, size: int | None = None) -> bytes:
        """Append a tensor's raw data. ``size`` is required for a location. Returns the fields of a TensorProto that
        refer to the data."""
        size = len(source) if size is None else size
        offset = None if isinstance(source, memoryview) else self._placed.get((*source[:2], size))
        if offset is None:  # tensors that share their data continue to share it
            alignment = _PAGE if size >= _PAGED_BYTES else _ALIGNMENT
            offset = -(-self.size // alignment) * alignment
            self._pieces.append((offset, source, size))
            self.size = offset + size
            if not isinstance(source, memoryview):
                self._placed[(*source[:2], size)] = offset
        entries = (("location", self.name), ("offset", str(offset)), ("length", str(size)))
        stated = b"".join(encode_field(_EXTERNAL_DATA, encode_string_entry(key, value)) for key, value in entries)
        return stated + encode_number(_DATA_LOCATION, _EXTERNAL)

    def write(self, target: int, files: ExternalFiles) -> None:
        """Write the data to an open, empty file. Raises ValueError if a location cannot be read, and OSError if writing
        fails."""
        at = 0
        for offset, source, size in self._pieces:
            write_all(target, memoryview(bytes(offset - at)))
            if isinstance(source, memoryview):
                write_all(target, source)
            else:
                files.copy(source, size, target)
            at = offset + size
