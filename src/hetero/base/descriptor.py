"""An open file descriptor."""

from __future__ import annotations

import os

__all__ = ["Descriptor"]


class Descriptor:
    """One open file descriptor, which can be replaced by another. It is closed when this object is collected."""

    def __init__(self, number: int) -> None:
        self.number = number

    # The number is forgotten before it is closed: after an interrupt in between, closing it again would close the
    # descriptor of another thread that got the same number.

    def replace(self, number: int) -> None:
        old, self.number = self.number, number
        os.close(old)

    def close(self) -> None:
        old, self.number = self.number, -1
        if old >= 0:
            os.close(old)

    def __del__(self) -> None:
        self.close()
