# Types only. The docstrings are in src/_core/_ngrams.pyx, where help() finds them.

from collections.abc import Hashable
from typing import Any, final

from numpy.typing import NDArray

@final
class NGrams:
    def __init__(self, grams: dict[tuple[Hashable, ...], int], width: int) -> None: ...
    def rows(
        self,
        items: list[Any],
        count: int,
        length: int,
        least: int,
        most: int,
        skips: int,
        weights: bytes | None = None,
        is_present: bool = False,
        is_vector: bool = False,
    ) -> NDArray[Any]: ...
