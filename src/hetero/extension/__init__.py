"""Extensions of devices: custom operators, defined by a Python function over arrays or by a C function.

`custom_op` defines the class for users, `binding` applies an operator to a node, `c_call` is the C interface in Python,
`table` holds the operators of a device, and `types` infers the types of a model's values through them.
"""

from __future__ import annotations

import os

__all__ = ["get_include"]


def get_include() -> str:
    """The folder of ``hetero/custom_op.h``, for the ``-I`` of a C compiler."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "include")
