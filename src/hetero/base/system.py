"""What hetero needs of the operating system, apart from what Python hides. One file per family of systems implements
it: `system_posix` and `system_windows`.

- ``READ``, ``NEW``, ``FOLDER``: flags for `os.open`: a file for reading, a new file, a folder
- ``LOCKS``: whether `lock` locks a file; otherwise an open file cannot be removed or renamed
- ``lock(number, wait)``: lock an open file for this process. Raises ``OSError``
- ``open_below(folder, parts, follow_links)``: a `Descriptor` of a file by its path below a folder
- ``sync_file(path)``: write a file to disk
- ``rename_folder(source, target)``: ``target`` may be an empty folder
- ``read_at(number, size, offset)``: read an open file without changing its position for other threads
- ``COPIES``: functions (source, offset, size, target) that copy bytes between open files within the operating system
  and return how many. Raise ``OSError`` if they cannot
- ``processors()``: the numbers of the processors that this process may use
"""

import sys

if sys.platform == "win32":
    from .system_windows import (
        COPIES,
        FOLDER,
        LOCKS,
        NEW,
        READ,
        lock,
        open_below,
        processors,
        read_at,
        rename_folder,
        sync_file,
    )
else:
    from .system_posix import (
        COPIES,
        FOLDER,
        LOCKS,
        NEW,
        READ,
        lock,
        open_below,
        processors,
        read_at,
        rename_folder,
        sync_file,
    )

__all__ = [
    "COPIES",
    "FOLDER",
    "LOCKS",
    "NEW",
    "READ",
    "lock",
    "open_below",
    "processors",
    "read_at",
    "rename_folder",
    "sync_file",
]
