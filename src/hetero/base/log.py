"""``LOG_LEVEL``: messages of a device, through Python's logger ``hetero.<device>``.

``NO`` (default) logs nothing. With another level, messages of that level and above go to the handlers that the program
has set up for the logger, whatever the level of the logger; without handlers, to stderr. ``ERR``: failed compilations.
``WARNING``: deviations from the plan. ``INFO``: compilations, imports and cache hits. ``DEBUG``: the number of nodes
that a device supports. ``TRACE``: each unsupported node with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["LEVELS", "is_told", "tell"]

LEVELS: Final = ("NO", "ERR", "WARNING", "INFO", "DEBUG", "TRACE")
_NUMBERS = {"ERR": 40, "WARNING": 30, "INFO": 20, "DEBUG": 10, "TRACE": 5}  # levels of the module logging


def is_told(settings: Mapping[str, Any], level: str) -> bool:
    """Whether a device's settings enable messages of ``level``."""
    return LEVELS.index(level) <= LEVELS.index(settings.get("LOG_LEVEL", "NO"))


def tell(settings: Mapping[str, Any], device: str, level: str, message: str) -> None:
    """Log a message about ``device`` if its settings enable the level."""
    if not is_told(settings, level):
        return
    import logging  # late: takes milliseconds to import, and most programs log nothing

    logger = logging.getLogger(f"hetero.{device.partition(':')[0]}")
    if not logger.hasHandlers():
        root = logging.getLogger("hetero")
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        root.addHandler(handler)
    logging.addLevelName(_NUMBERS["TRACE"], "TRACE")
    logger.handle(logger.makeRecord(logger.name, _NUMBERS[level], "", 0, message, (), None))
