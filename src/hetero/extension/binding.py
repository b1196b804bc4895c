"""A custom operator for one node: its attributes, the rule for its results, and its Python function with all checks.

Invalid results of a function or rule raise ValueError; devices add the name of the node.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..base.formatting import counted
from ..errors import InferenceError, raise_out_of_memory
from ..model.types import ValueType
from .c_call import CAttributes, CFunction
from .custom_op import CustomOp, Shape, dtype_of_output

if TYPE_CHECKING:
    from ..model.model import Model

__all__ = ["BoundOp", "bind", "bind_node"]

_MAX_RANK = 64  # NumPy's limit
_MAX_BYTES = 1 << 40  # no machine has more memory for one array

Array = NDArray[Any]


class BoundOp:
    """A custom operator for nodes with these attributes. Immutable and thread-safe."""

    def __init__(self, op: CustomOp, attributes: Mapping[str, Any]) -> None:
        """Raises ValueError for an attribute of a type that C functions do not support."""
        self.op = op
        self.attributes = attributes
        # C functions receive pointers into this object, so it must outlive each call.
        self.c_attributes = CAttributes(attributes if op.address else {})

    def output_dtypes(self, inputs: Sequence[np.dtype[Any] | None]) -> list[np.dtype[Any] | None]:
        """The element type of each output, None if unknown. ``inputs``: None for an absent or unknown input."""
        return [dtype_of_output(self.op, at, inputs, self.attributes) for at in range(len(self.op.output_dtypes))]

    def output_shapes(self, inputs: Sequence[Shape | None]) -> list[Shape]:
        """The checked result of the shape rule, which must exist."""
        rule = self.op.shape_rule
        assert rule is not None, "checked by the caller"
        count = len(self.op.output_dtypes)
        try:
            result: Any = rule(*inputs, **self.attributes)
        except Exception as error:
            raise_out_of_memory(error)
            shapes = ", ".join("absent" if shape is None else str(list(shape)) for shape in inputs)
            raise ValueError(f"its shape rule failed for {shapes}: {type(error).__name__}: {error}") from error
        try:
            unchecked = [*result]
            if count == 1 and all(hasattr(dim, "__index__") for dim in unchecked):
                unchecked = [unchecked]  # the shape itself
            checked = [tuple(map(operator.index, shape)) for shape in unchecked]
        except TypeError as error:
            raise ValueError(f"its shape rule returned {result!r}, expected {_shapes(count)}") from error
        if len(checked) != count:
            raise ValueError(f"its shape rule returned {result!r}, expected {_shapes(count)}")
        for shape in checked:
            if len(shape) > _MAX_RANK or any(dim < 0 for dim in shape):
                raise ValueError(
                    f"its shape rule returned {list(shape)}, expected at most {_MAX_RANK} dims, none of them negative"
                )
            if math.prod(filter(None, shape)) > _MAX_BYTES:
                raise ValueError(f"its shape rule returned {list(shape)}, which is too large for memory")
        return checked

    def output_types(self, inputs: Sequence[ValueType | None]) -> list[tuple[np.dtype[Any], Shape]]:
        """Element type and shape of each output, for inputs of known type and shape (None: absent)."""
        shapes = self.output_shapes([None if known is None else known.shape for known in inputs])  # type: ignore[misc]
        dtypes = self.output_dtypes([None if known is None else known.dtype for known in inputs])
        types = []
        for position, (dtype, shape) in enumerate(zip(dtypes, shapes, strict=True)):
            if dtype is None:
                raise ValueError(
                    f"output {position} has the element type of input {self.op.output_dtypes[position]}, "
                    "which is absent"
                )
            if math.prod(filter(None, shape)) * dtype.itemsize > _MAX_BYTES:
                raise ValueError(f"its shape rule returned {list(shape)} for {dtype}, which is too large for memory")
            types.append((dtype, shape))
        return types

    def check_inputs(self, inputs: Sequence[np.dtype[Any] | None]) -> None:
        """Raise ValueError for an element type that the operator does not support. None: absent or unknown."""
        for position, dtype in enumerate(inputs):
            accepted = self.op.dtypes_accepted(position)
            if dtype is not None and accepted is not None and dtype not in accepted:
                names = ", ".join(sorted(_name(one) for one in accepted))
                raise ValueError(f"input {position} is {_name(dtype)}; {self.op.name} supports {names}")

    def run(self, inputs: Sequence[Array | None]) -> list[Array]:
        """Compute the outputs with the Python function if there is one, otherwise with the C function. Does not write
        ``inputs``."""
        self.check_inputs([None if array is None else array.dtype for array in inputs])
        if self.op.function is None:
            return self._run_c(inputs)
        frozen = [None if array is None else _frozen(array) for array in inputs]
        try:
            returned: Any = self.op.function(*frozen, **self.attributes)
        except InferenceError as error:  # from another model that the function runs
            raise RuntimeError(f"its function raised InferenceError: {error}") from error
        except Exception as error:
            raise RuntimeError(f"its function raised {type(error).__name__}: {error}") from error
        count = len(self.op.output_dtypes)
        if isinstance(returned, (np.ndarray, np.generic)):
            returned = [returned]
        if not isinstance(returned, (list, tuple)) or len(returned) != count:
            is_sequence = isinstance(returned, (list, tuple))
            kind = counted(len(returned), "result") if is_sequence else type(returned).__name__
            raise ValueError(f"its function returned {kind}, expected {counted(count, 'array')}")
        return self._checked(frozen, returned)

    def _checked(self, inputs: Sequence[Array | None], returned: Sequence[Any]) -> list[Array]:
        """The results as arrays that share no memory with the inputs, checked against the promised types. Read-only,
        because the function may keep them and return them again."""
        dtypes = self.output_dtypes([None if array is None else array.dtype for array in inputs])
        shapes: Sequence[Shape | None] = [None] * len(returned)
        if self.op.shape_rule is not None:
            shapes = self.output_shapes([None if array is None else array.shape for array in inputs])
        results = []
        for position, (result, dtype, shape) in enumerate(zip(returned, dtypes, shapes, strict=True)):
            if not isinstance(result, (np.ndarray, np.generic)):
                raise ValueError(
                    f"its function returned {type(result).__name__} for output {position}, expected an array"
                )
            array: Array = np.asarray(result)
            if array.dtype.kind in "US" and dtype is not None and dtype.hasobject:
                array = array.astype(object)
            if array.dtype != dtype or (shape is not None and array.shape != shape):
                found = f"{_name(array.dtype)}{list(array.shape)}"
                expected = f"{_name(dtype)}{'' if shape is None else list(shape)}"
                raise ValueError(f"its function returned {found} for output {position}, expected {expected}")
            shares = any(other is not None and np.may_share_memory(array, other) for other in inputs)
            if shares or not array.dtype.isnative:
                array = array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
            results.append(_frozen(np.ascontiguousarray(array).reshape(array.shape)))
        return results

    def _run_c(self, inputs: Sequence[Array | None]) -> list[Array]:
        known = [None if array is None else ValueType(array.dtype, array.shape) for array in inputs]
        outputs = [np.empty(shape, dtype) for dtype, shape in self.output_types(known)]
        function = CFunction(self.op.address, self.op.user_data, self.c_attributes)
        function(inputs, outputs)
        return outputs


def bind(op: CustomOp, attributes: Mapping[str, Any], num_inputs: int, num_outputs: int) -> BoundOp | str:
    """The operator for a node, or the reason why it does not fit. ``attributes``: as in `NodeView.attributes`."""
    minimum, maximum = op.num_inputs
    if not minimum <= num_inputs <= maximum:
        expected = counted(minimum, "input") if minimum == maximum else f"{minimum} to {maximum} inputs"
        return f"{op.name} has {expected}, found {num_inputs}"
    if num_outputs > len(op.output_dtypes):
        return f"{op.name} has {counted(len(op.output_dtypes), 'output')}, found {num_outputs}"
    try:
        plain = {name: _plain(value) for name, value in attributes.items()}
    except ValueError as error:
        return f"{op.name}: {error}"
    for role, called in (("function", op.function), ("shape rule", op.shape_rule)):
        problem = None if called is None else _call_problem(called, num_inputs, plain)
        if problem:
            return f"the {role} of {op.name} cannot be called: {problem}"
    try:
        bound = BoundOp(op, plain)
        bound.output_dtypes([None] * num_inputs)
    except ValueError as error:
        return f"{op.name}: {error}"
    return bound


def bind_node(op: CustomOp, model: Model, index: int, dtypes: Sequence[np.dtype[Any] | None] = ()) -> BoundOp | str:
    """The operator for a node of a model, or the reason why it does not fit, as far as known without shape inference.
    ``dtypes``: element types of the inputs that the caller knows in addition to the model."""
    inputs = model.node_inputs[index].tolist()
    bound = bind(op, model.nodes[index].attributes, len(inputs), len(model.node_outputs[index]))
    if isinstance(bound, str):
        return bound
    known = [None if value < 0 else model.type_of(value, infer=False) for value in inputs]
    known_dtypes = [*dtypes, *(None if one is None else one.dtype for one in known[len(dtypes) :])]
    for position, value in enumerate(inputs):
        if value >= 0 and known_dtypes[position] is None and not model.is_tensor(value, infer=False):
            return f"input {position} is not a tensor; {op.name} supports only tensors"
    try:
        bound.check_inputs(known_dtypes)
        if op.shape_rule is not None and all(one is None or one.has_sizes for one in known):
            bound.output_shapes([None if one is None else one.shape for one in known])  # type: ignore[misc]
    except ValueError as error:
        return str(error)
    return bound


def _plain(value: Any) -> Any:
    """The value of an attribute for functions. Raises ValueError for graphs and other values that are not data."""
    if isinstance(value, bytes):
        return value.decode(errors="surrogateescape")
    if isinstance(value, (int, float, str)):
        return value
    if isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated"):
        return tuple(_plain(item) for item in value)
    import onnx

    if isinstance(value, onnx.TensorProto):
        import onnx.numpy_helper

        array: Array = onnx.numpy_helper.to_array(value)
        return _frozen(array)
    raise ValueError(f"an attribute has the unsupported type {type(value).__name__}")


def _call_problem(called: Callable[..., Any], num_inputs: int, attributes: Mapping[str, Any]) -> str | None:
    """Why a function does not accept this number of inputs and these attributes. None if it does, or if unknown."""
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # some compiled functions have no signature
        return None
    try:
        signature.bind(*[None] * num_inputs, **attributes)
    except TypeError as error:
        arguments = ", ".join([counted(num_inputs, "input"), *(f"attribute {name}" for name in attributes)])
        return f"{error} (called with {arguments})"
    return None


def _frozen(array: Array) -> Array:
    view = array.view()
    view.flags.writeable = False
    return view


def _name(dtype: np.dtype[Any] | None) -> str:
    return "an unknown type" if dtype is None else "string" if dtype.hasobject else dtype.name


def _shapes(count: int) -> str:
    return "a shape" if count == 1 else f"{count} shapes"
