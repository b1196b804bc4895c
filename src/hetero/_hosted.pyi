# Types only. The docstrings are in src/_core/_hosted.pyx, where help() finds them.

from collections.abc import Callable, Sequence
from typing import Any, final

from numpy.typing import NDArray

# The node, its function, and the numbers of the values that it takes and returns.
_Step = tuple[Any, Callable[..., Sequence[Any]], tuple[int, ...], tuple[int, ...]]

@final
class EndNodes:
    running: Any
    def __init__(
        self,
        first: tuple[_Step, ...],
        last: tuple[_Step, ...],
        rest: list[Any],
        to_plans: tuple[int, ...],
        from_plans: tuple[tuple[int, NDArray[Any] | None], ...],
        outputs: tuple[int, ...],
    ) -> None: ...
    def run(
        self, inputs: Sequence[Any], plans: Callable[[list[Any]], Sequence[Any] | None], cancellation: Any
    ) -> list[Any] | None: ...

def matching(inputs: Sequence[Any], types: list[tuple[Any, Any]]) -> list[NDArray[Any]] | None: ...
def places(table: dict[Any, int], array: NDArray[Any], absent: int, nan: int, column: int = -1) -> NDArray[Any]: ...
def one_hot(table: dict[Any, int], array: NDArray[Any], width: int, column: int = -1) -> tuple[NDArray[Any], int]: ...
def runs(text: str, members: bytes, only_ascii: bool) -> list[str] | None: ...
def strings(items: list[Any], shape: tuple[int, ...]) -> NDArray[Any]: ...
def chosen(table: NDArray[Any], numbers: NDArray[Any]) -> NDArray[Any]: ...

@final
class Maps:
    def __init__(self, labels: tuple[Any, ...]) -> None: ...
    def __call__(self, x: NDArray[Any]) -> list[list[dict[Any, float]]]: ...
