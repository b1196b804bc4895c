# Types only. The docstrings are in src/_core/_dlpack.pyx, where help() finds them.

from typing import Any

def released_after_work(capsule: Any, context: int, push: int, synchronize: int, pop: int) -> Any: ...
