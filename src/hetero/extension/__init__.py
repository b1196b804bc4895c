"""Extensions of devices: custom operators, by a Python function over arrays or by a C function.

`custom_op` is what users write, `binding` an operator for one node, `c_call` the C interface seen from Python, `table`
what one device was given, `types` what operators say about the types of a model's values.
"""

from __future__ import annotations

import os

__all__ = ["get_include"]


def get_include() -> str:
    """The folder of ``hetero/custom_op.h``, for the ``-I`` of a C compiler."""
    return os.path.join(os.path.dirname(os.path.dirname(__file__)), "include")
