"""`CustomOp`: the user's definition of an operator that ONNX does not define."""

from __future__ import annotations

import ctypes
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import ExtensionError, raise_out_of_memory
from ..model.types import onnx_dtype_of

__all__ = ["CustomOp", "Shape"]

Shape = tuple[int, ...]
Accepted = frozenset[np.dtype[Any]] | None
OutputDtype = int | np.dtype[Any] | Callable[..., Any]

_UNLIMITED = 1 << 20  # number of inputs; nodes have fewer
_STANDARD = ("", "ai.onnx", "ai.onnx.ml", "ai.onnx.training", "ai.onnx.preview", "ai.onnx.preview.training")


class CustomOp:
    """An operator of a custom domain, for `Core.add_extension`. Immutable.

    ``op_type``, ``domain``: as in nodes. ONNX's own domains are rejected. ``since_version``: the first version of the
    domain with this operator. Of several operators, a node uses the latest that is not above the version that the model
    imports.

    ``function``: receives the inputs as NumPy arrays, by position (None for an omitted input), and the attributes of
    the node, by name: numbers, str, tuples of these, and arrays for tensors. It returns one array, or a sequence of
    arrays for several outputs, with exactly the stated element types, and must not write to them later. Input arrays
    are read-only and valid only during the call, because their memory is reused. Several threads may call the function
    at the same time.

    ``c_function``: the same in C, as described in ``hetero/custom_op.h`` (see `hetero.get_include`): a function of a
    library loaded by `ctypes`, an object made by ``ctypes.CFUNCTYPE``, or an address. It requires a ``shape_rule``.
    ``user_data``: an address that is passed with each call. If there is also a ``function``, devices that run compiled
    programs use the C function, and TEMPLATE uses the Python function.

    ``shape_rule``: receives the shapes of the inputs (tuples of int, None for an omitted input) and the attributes, and
    returns the shape of the output, or a sequence of shapes for several outputs. It must depend only on its arguments.
    Without a rule, results may have any shape, including shapes that depend on data.

    ``output_dtypes``: the element type of each output: a dtype, the number of an input of the same type, or a function
    from the attributes to a dtype. A node may omit outputs; all are computed. ``num_inputs``: the number of inputs, or
    (minimum, maximum); None: any number. ``input_dtypes``: the supported element types of each input: a dtype, a
    sequence of dtypes, or None for any. The last entry applies to all further inputs.

    ``version``: a string that must change whenever results change. An exported model can be imported only if the
    operator has the same version. With an empty version, models are not kept in ``CACHE_DIR``.

    Raises `ExtensionError` for inconsistent arguments.
    """

    __slots__ = (
        "address",
        "c_function",
        "domain",
        "function",
        "input_dtypes",
        "num_inputs",
        "op_type",
        "output_dtypes",
        "shape_rule",
        "since_version",
        "user_data",
        "version",
    )

    def __init__(
        self,
        op_type: str,
        domain: str,
        *,
        function: Callable[..., NDArray[Any] | Sequence[NDArray[Any]]] | None = None,
        c_function: Any = None,
        user_data: int = 0,
        shape_rule: Callable[..., Sequence[int] | Sequence[Sequence[int]]] | None = None,
        output_dtypes: Sequence[DTypeLike | int | Callable[..., DTypeLike]] = (0,),
        num_inputs: int | tuple[int, int] | None = None,
        input_dtypes: Sequence[DTypeLike | Sequence[DTypeLike] | None] | None = None,
        since_version: int = 1,
        version: str = "",
    ) -> None:
        for what, text in (("op_type", op_type), ("domain", domain)):
            if not isinstance(text, str) or (what == "op_type" and not text) or "::" in text or "\0" in text:
                raise ExtensionError(f"custom operator: {what}: expected a name, found {text!r}")
        self.op_type = op_type
        self.domain = domain
        if domain in _STANDARD:
            raise self._error(
                f"the operators of {domain or 'ai.onnx'!r} are ONNX's own and cannot be replaced: choose another domain"
            )
        for what, called in (("function", function), ("shape_rule", shape_rule)):
            if called is not None and not callable(called):
                raise self._error(f"{what}: expected a callable, found {called!r}")
        if function is None and c_function is None:
            raise self._error("expected a function or a c_function, found neither")
        if c_function is not None and shape_rule is None:
            raise self._error("a c_function requires a shape_rule, because its outputs are allocated before the call")
        if isinstance(since_version, bool) or not isinstance(since_version, int) or since_version < 1:
            raise self._error(f"since_version: expected 1 or more, found {since_version!r}")
        if not isinstance(version, str):
            raise self._error(f"version: expected a string, found {version!r}")
        if isinstance(user_data, bool) or not isinstance(user_data, int) or not 0 <= user_data < 1 << 63:
            raise self._error(f"user_data: expected an address, found {user_data!r}")
        self.function = function
        self.c_function = c_function
        self.address = 0 if c_function is None else self._address_of(c_function)
        """Address of the C function, or 0."""
        self.user_data = user_data
        self.shape_rule = shape_rule
        self.num_inputs = self._arity(num_inputs)
        """(minimum, maximum)"""
        self.input_dtypes = self._accepted(input_dtypes)
        """Supported types of each input, the last for all further inputs: a set, or None for any."""
        self.output_dtypes = self._results(output_dtypes)
        self.since_version = since_version
        self.version = version

    @property
    def name(self) -> str:
        """``domain::op_type``."""
        return f"{self.domain}::{self.op_type}"

    def dtypes_accepted(self, position: int) -> Accepted:
        """The supported element types of an input; None: any."""
        if not self.input_dtypes:
            return None
        return self.input_dtypes[min(position, len(self.input_dtypes) - 1)]

    def __repr__(self) -> str:
        functions = (("Python", self.function), ("C", self.c_function))
        kinds = [kind for kind, function in functions if function is not None]
        return f"<CustomOp {self.name} since {self.since_version}, in {' and '.join(kinds)}>"

    def _error(self, problem: str) -> ExtensionError:
        return ExtensionError(f"custom operator {self.name}: {problem}")

    def _address_of(self, c_function: Any) -> int:
        if isinstance(c_function, int) and not isinstance(c_function, bool):
            address: int | None = c_function
        else:
            try:
                address = ctypes.cast(c_function, ctypes.c_void_p).value
            except ctypes.ArgumentError as error:
                raise self._error(
                    f"c_function: expected a ctypes function or an address, found {c_function!r}"
                ) from error
        if address is None or not 0 < address < 1 << 63:
            raise self._error(f"c_function: {address or 0:#x} is not the address of a function")
        return address

    def _arity(self, num_inputs: Any) -> tuple[int, int]:
        if num_inputs is None:
            return 0, _UNLIMITED
        pair = num_inputs if isinstance(num_inputs, tuple) else (num_inputs, num_inputs)
        try:
            minimum, maximum = map(operator.index, pair)
        except (TypeError, ValueError) as error:
            raise self._error(f"num_inputs: expected a number or (minimum, maximum), found {num_inputs!r}") from error
        if not 0 <= minimum <= maximum <= _UNLIMITED:
            raise self._error(f"num_inputs: expected 0 <= minimum <= maximum, found {num_inputs!r}")
        return minimum, maximum

    def _accepted(self, entries: Any) -> tuple[Accepted, ...]:
        if entries is None:
            return ()
        if isinstance(entries, (str, np.dtype, type)) or not isinstance(entries, Sequence) or not entries:
            raise self._error(f"input_dtypes: expected an entry per input, found {entries!r}")
        accepted: list[Accepted] = []
        for entry in entries:
            if entry is None:
                accepted.append(None)
                continue
            several = isinstance(entry, (list, tuple, set, frozenset))
            accepted.append(frozenset(self._dtype(one, "input_dtypes") for one in (entry if several else (entry,))))
        return tuple(accepted)

    def _results(self, entries: Any) -> tuple[OutputDtype, ...]:
        if isinstance(entries, (str, np.dtype, type)) or not isinstance(entries, Sequence) or not entries:
            raise self._error(f"output_dtypes: expected an entry per output, found {entries!r}")
        results: list[OutputDtype] = []
        for entry in entries:
            if isinstance(entry, int) and not isinstance(entry, bool):
                if not 0 <= entry < max(self.num_inputs[1], 1):
                    raise self._error(f"output_dtypes: {entry} is not the number of an input")
                results.append(entry)
            elif callable(entry) and not isinstance(entry, type):
                results.append(entry)
            else:
                results.append(self._dtype(entry, "output_dtypes"))
        return tuple(results)

    def _dtype(self, entry: Any, argument: str) -> np.dtype[Any]:
        import ml_dtypes  # noqa: F401  registers its names in NumPy

        try:
            dtype = np.dtype(entry)
        except (TypeError, ValueError) as error:
            raise self._error(f"{argument}: {entry!r} is not a dtype") from error
        if entry is None or not onnx_dtype_of(dtype):
            raise self._error(f"{argument}: ONNX has no element type for {entry!r}")
        return np.dtype(object) if dtype.kind in "US" else dtype


def dtype_of_output(op: CustomOp, output: int, inputs: Sequence[Any], attributes: Mapping[str, Any]) -> Any:
    """The element type of an output; None if it is the type of an unknown input. ``inputs``: element types, None for
    absent or unknown inputs. Raises ValueError if a function of the operator returns an invalid type."""
    entry = op.output_dtypes[output]
    if isinstance(entry, int):
        return inputs[entry] if entry < len(inputs) else None
    if isinstance(entry, np.dtype):
        return entry
    try:
        return op._dtype(entry(**attributes), "output_dtypes")
    except Exception as error:
        raise_out_of_memory(error)
        raise ValueError(f"the dtype of output {output}: {type(error).__name__}: {error}") from error
