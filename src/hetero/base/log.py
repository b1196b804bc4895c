"""``LOG_LEVEL``: what a device tells of its work, through Python's logger ``hetero.<device>``.

``NO`` (default) tells nothing: errors are exceptions and warnings are warnings. With another level, messages of that
level and above go to the handlers that the program has set up for the logger, whatever level the logger itself has; to
stderr if there are none. ``ERR``: what failed to compile. ``WARNING``: what went another way than planned. ``INFO``:
what was compiled, imported, or found in the cache. ``DEBUG``: how many nodes a device takes. ``TRACE``: each refusal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["LEVELS", "is_told", "tell"]

LEVELS: Final = ("NO", "ERR", "WARNING", "INFO", "DEBUG", "TRACE")
_NUMBERS = {"ERR": 40, "WARNING": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}  # of the module logging


def is_told(settings: Mapping[str, Any], level: str) -> bool:
    """Whether messages of ``level`` are wanted by a device's settings."""
    return LEVELS.index(level) <= LEVELS.index(settings.get("LOG_LEVEL", "NO"))


def tell(settings: Mapping[str, Any], device: str, level: str, message: str) -> None:
    """A message about ``device``, if its settings want such."""
    if not is_told(settings, level):
        return
    import logging  # takes milliseconds to import, and most programs ask for no messages

    logger = logging.getLogger(f"hetero.{device.partition(':')[0]}")
    if not logger.hasHandlers():
        root = logging.getLogger("hetero")
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        root.addHandler(handler)
    logging.addLevelName(_NUMBERS["TRACE"], "TRACE")
    logger.handle(logger.makeRecord(logger.name, _NUMBERS[level], "", 0, message, (), None))
