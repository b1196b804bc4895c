"""The entry point of the command ``hetero``, and of ``python -m hetero``."""

from __future__ import annotations

import os

from .base.interrupts import end_on_interrupt

__all__ = ["run"]


def run() -> None:
    """Run the command line. It is imported here, so that an interrupt of the imports ends the process quietly."""
    end_on_interrupt()
    # OpenBLAS, which comes with NumPy, starts threads that wait for work actively: 0.1 s of each processor per command.
    # The least value lets them sleep at once; it is a logarithm.
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
    from .cli import main

    main(prog_name="hetero")


if __name__ == "__main__":
    run()
