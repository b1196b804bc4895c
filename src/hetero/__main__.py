"""The entry point of the command ``hetero``, and of ``python -m hetero``."""

from __future__ import annotations

from .base.interrupts import end_on_interrupt

__all__ = ["run"]


def run() -> None:
    """Run the command line. It is imported here, so that an interrupt of the imports ends the process quietly."""
    end_on_interrupt()
    from .cli import main

    main(prog_name="hetero")


if __name__ == "__main__":
    run()
