# Types only. The docstrings are in src/_core/_hosted.pyx, where help() finds them.

from collections.abc import Callable, Sequence
from typing import Any, final

from numpy.typing import NDArray

@final
class Nodes:
    at: int
    def __init__(
        self,
        functions: tuple[Callable[..., Sequence[Any]], ...],
        inputs: tuple[tuple[int, ...], ...],
        outputs: tuple[tuple[int, ...], ...],
    ) -> None: ...
    def run(self, values: list[Any], cancellation: Any) -> None: ...

def places(table: dict[Any, int], items: list[Any], absent: int, nan: int) -> NDArray[Any]: ...
def one_hot(
    table: dict[Any, int], items: list[Any], shape: tuple[int, ...], width: int
) -> tuple[NDArray[Any], int]: ...
def runs(text: str, members: bytes, only_ascii: bool) -> list[str] | None: ...
def strings(items: list[Any], shape: tuple[int, ...]) -> NDArray[Any]: ...
def maps(template: dict[Any, Any], labels: tuple[Any, ...], rows: NDArray[Any]) -> list[dict[Any, float]]: ...
