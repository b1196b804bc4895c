"""The file beside a saved model that holds its larger tensors, one after the other."""

from __future__ import annotations

from ..base.files import write_all
from .external import ExternalFiles, Location
from .wire import encode_field, encode_number, encode_string_entry

__all__ = ["DataFile"]

_EXTERNAL_DATA, _DATA_LOCATION, _EXTERNAL = 13, 14, 1

# Elements of any type are aligned, and so are cache lines; large tensors begin a page, so that they can be mapped by
# themselves, and file systems that share blocks between files can share theirs.
_ALIGNMENT, _PAGE = 64, 4096
_PAGED_BYTES = 1 << 20


class DataFile:
    """What goes where in such a file. ``name``: its own, beside the model's. ``at_least``: bytes of a tensor that
    goes there."""

    def __init__(self, name: str, at_least: int) -> None:
        self.name = name
        self.at_least = at_least
        self.size = 0
        self._pieces: list[tuple[int, Location | memoryview, int]] = []
        self._placed: dict[Location, int] = {}

    def place(self, source: Location | memoryview, size: int | None = None) -> bytes:
        """Puts a tensor's raw data next; ``size`` is needed for a location. Gives the fields of a TensorProto that
        say where it is."""
        size = len(source) if size is None else size
        offset = None if isinstance(source, memoryview) else self._placed.get((*source[:2], size))
        if offset is None:  # tensors that share their data still do
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
        """Writes all to an open, empty file. ValueError if a location cannot be read; OSError from writing."""
        at = 0
        for offset, source, size in self._pieces:
            write_all(target, memoryview(bytes(offset - at)))
            if isinstance(source, memoryview):
                write_all(target, source)
            else:
                files.copy(source, size, target)
            at = offset + size
