"""What the functions of operators use to plan a node: new tensors, launches of kernels, and elementwise expressions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...base.formatting import shape_text
from ...errors import InferenceError
from .device import Device, KernelSource, file_kernel
from .elementwise import collapsed, epilogue_of, kernel_of, layout_bytes, products_in, strides_of
from .steps import KernelStep, ProductStep, Step
from .tensors import CONSTANT, SCRATCH, Expression, Scalar, Slot, Tensor

__all__ = ["LARGEST", "Builder", "broadcast"]

LARGEST = 2**31 - 1
"""The maximum number of elements of a tensor: kernels compute positions in 32 bits."""
_MOST_STATEMENTS, _MOST_TENSORS = 32, 8
"""The limits of a generated kernel. With more tensors, the layout has no room for their strides."""
_SMALL = 64
"""Elements: views of smaller constants, such as shapes, are uploaded only if a kernel reads them."""
_WORDS = {1: "uchar", 2: "ushort", 4: "uint", 8: "ulong"}
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class Builder:
    """Records the steps of a plan."""

    def __init__(self, device: Device, uses_clblast: bool, tunes: bool = True, cache_folder: str = "") -> None:
        """``uses_clblast``: for products. ``tunes``: whether a faster kernel takes its place. ``cache_folder``: where
        tuning is stored; empty for the user's folder."""
        self.device = device
        self.uses_clblast = uses_clblast
        self.tunes = tunes
        self.cache_folder = cache_folder
        self.steps: list[Step] = []
        self.node = 0
        """The node that is being planned. Steps belong to it."""
        self.failed: Slot | None = None
        """The memory in which kernels report an index out of bounds."""

    # -- tensors

    def new(self, dtype: np.dtype[Any], shape: Sequence[int]) -> Tensor:
        """A tensor with memory that a step must fill. Raises `InferenceError` if it has too many elements."""
        tensor = Tensor(dtype, tuple(shape))
        check_size(tensor.shape)
        tensor.slot = Slot(tensor.nbytes, SCRATCH)
        return tensor

    def memory(self, tensor: Tensor) -> Slot:
        """The memory of a tensor. Computes its expression, or uploads its array, if necessary."""
        if tensor.slot is None:
            if tensor.expression is not None:
                self._compute(tensor)
            elif tensor.product is not None:
                tensor.slot = Slot(tensor.nbytes, SCRATCH)
                tensor.product.launch(self, tensor)
            else:
                assert tensor.array is not None
                block = self.device.memory.upload(tensor.array)
                block.is_constant = True
                tensor.slot = Slot(tensor.nbytes, CONSTANT, block)
        assert tensor.slot is not None
        return tensor.slot

    def view(self, tensor: Tensor, shape: Sequence[int]) -> Tensor:
        """The same elements with another shape."""
        if tensor.array is None or (tensor.slot is None and tensor.size > _SMALL):
            self.memory(tensor)  # of a constant: all views and all plans share one upload
        return tensor.viewed(tuple(shape))

    # -- steps

    def launch(
        self,
        source: KernelSource,
        arguments: Sequence[Tensor | Slot | np.generic | NDArray[Any]],
        writes: Tensor | Slot,
        global_size: tuple[int, ...],
        local_size: tuple[int, ...],
    ) -> None:
        """Add a kernel. ``global_size``: rounded up to a multiple of ``local_size``."""
        slots = [self.memory(each) if isinstance(each, Tensor) else each for each in arguments]
        number = len(self.steps)  # `memory` may have added steps
        rounded = tuple(-(-size // local) * local for size, local in zip(global_size, local_size, strict=True))
        if max(rounded) > 2**32 - 1:
            raise InferenceError(f"a kernel would need {max(rounded)} work-items in one dimension")
        for position, slot in enumerate(slots):
            if isinstance(slot, Slot):
                slot.uses.append((number, position))
                if slot is self.failed:
                    slot.writers.append(number)
        (self.memory(writes) if isinstance(writes, Tensor) else writes).writers.append(number)
        self.steps.append(KernelStep(self.node, source, slots, rounded, local_size))

    def per_element(
        self, source: KernelSource, arguments: Sequence[Tensor | Slot | np.generic | NDArray[Any]], result: Tensor
    ) -> None:
        """Add a kernel with one work-item for each element of ``result``, if it has any."""
        if result.size:
            self.launch(source, arguments, result, (result.size,), (self.device.group,))

    def add_product(self, step: ProductStep, result: Tensor) -> None:
        """Add a matrix product of CLBlast."""
        number = len(self.steps)
        for position, slot in enumerate(step.slots):
            slot.uses.append((number, position))
        self.memory(result).writers.append(number)
        self.steps.append(step)

    def failure_flag(self) -> Slot:
        """Memory for an int. A kernel that reads an index out of bounds stores the number of its node there, from 1."""
        if self.failed is None:
            self.failed = Slot(4, SCRATCH)
            self.fill(self.failed, 0, np.dtype(np.int32))
        return self.failed

    # -- elementwise expressions

    def elementwise(
        self, template: str, operands: Sequence[Tensor | Scalar], dtype: Any, shape: Sequence[int] | None = None
    ) -> Tensor:
        """The result of an elementwise operator, broadcast. It is computed together with its reader if possible.

        ``template``: OpenCL C with ``{0}``, ``{1}``, … for ``operands``, of the types `elementwise.COMPUTED`.
        """
        if shape is None:
            shape = broadcast([each.shape for each in operands if isinstance(each, Tensor)])
        shape = tuple(shape)
        check_size(shape)
        inlined = [self._operand(each, shape) for each in operands]
        statements, tensors = 1, 0
        for each in inlined:
            if isinstance(each, Tensor):
                own = each.expression.size if each.expression is not None else (1, 1)
                statements, tensors = statements + own[0], tensors + own[1]
        if statements > _MOST_STATEMENTS or tensors > _MOST_TENSORS:
            for each in inlined:
                if isinstance(each, Tensor) and each.expression is not None:
                    self.memory(each)
            statements, tensors = len(inlined), sum(isinstance(each, Tensor) for each in inlined)
        return Tensor(np.dtype(dtype), shape, expression=Expression(template, tuple(inlined), (statements, tensors)))

    def _operand(self, operand: Tensor | Scalar, shape: tuple[int, ...]) -> Tensor | Scalar:
        """The operand as a number, or as an expression that only this result reads, or else with memory."""
        if isinstance(operand, Scalar):
            return operand
        if operand.array is not None and operand.size == 1:
            return Scalar(operand.array.reshape(-1)[0], operand.dtype)
        is_later = operand.expression is not None or operand.product is not None
        if not is_later or operand.num_readers > 1 or operand.shape != shape:
            self.memory(operand)
        return operand

    def _compute(self, tensor: Tensor) -> None:
        """Add the kernel of the tensor's expression. A product that the expression reads computes it, if it can."""
        first, *others = products_in(tensor) or (None,)
        for other in others:
            self.memory(other)
        epilogue = None if first is None else epilogue_of(tensor, first)
        if first is not None and first.product is not None and epilogue is not None:
            tensor.expression = None
            tensor.slot = Slot(tensor.nbytes, SCRATCH)
            first.product.launch(self, tensor, epilogue)
            return
        source, arguments = kernel_of(tensor)
        tensor.expression = None
        tensor.slot = Slot(tensor.nbytes, SCRATCH)
        self.per_element(source, [tensor, *arguments], tensor)

    # -- copies

    def move(
        self,
        x: Tensor,
        result: Tensor,
        dims: Sequence[int],
        from_strides: Sequence[int],
        to_strides: Sequence[int],
        begins: tuple[int, int] = (0, 0),
    ) -> None:
        """Copy elements: ``dims`` from the outermost, the strides on both sides, and the first positions."""
        count = math.prod(dims)
        if not count:
            return
        joined, (inner_from, inner_to) = collapsed(dims, [from_strides, to_strides])
        layout = layout_bytes(joined, [inner_from, inner_to])
        source = file_kernel("moves.cl", "move", defines=_word(x.dtype))
        numbers = [np.uint32(count), np.int32(begins[0]), np.int32(begins[1])]
        self.launch(source, [x, result, layout, *numbers], result, (count,), (self.device.group,))

    def fill(self, result: Tensor | Slot, value: Any, dtype: np.dtype[Any]) -> None:
        """Set all elements."""
        slot = self.memory(result) if isinstance(result, Tensor) else result
        size = slot.nbytes // dtype.itemsize
        if size:
            word = np.asarray(value, dtype).reshape(1).view(_UNSIGNED[dtype.itemsize])[0]
            source = file_kernel("moves.cl", "fill", defines=_word(dtype))
            self.launch(source, [slot, word, np.uint32(size)], slot, (size,), (self.device.group,))

    def expand(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """``x``, broadcast to ``shape``."""
        if x.shape == tuple(shape):
            return x
        result = self.new(x.dtype, shape)
        self.move(x, result, shape, strides_of(x.shape, shape), contiguous(shape))
        return result

    def transpose(self, x: Tensor, order: Sequence[int]) -> Tensor:
        """``x`` with its dimensions in another order."""
        shape, strides = [x.shape[at] for at in order], contiguous(x.shape)
        kept = [at for at in order if x.shape[at] != 1]
        if kept == sorted(kept):  # only dimensions of size 1 change places
            return self.view(x, shape)
        result = self.new(x.dtype, shape)
        self.move(x, result, shape, [strides[at] for at in order], contiguous(shape))
        return result


def _word(dtype: np.dtype[Any]) -> tuple[tuple[str, str], ...]:
    return (("T", _WORDS[dtype.itemsize]), ("I", "int"))


def contiguous(shape: Sequence[int]) -> list[int]:
    """The strides of a C-contiguous array, in elements."""
    strides, step = [0] * len(shape), 1
    for at in reversed(range(len(shape))):
        strides[at] = step
        step *= shape[at]
    return strides


def check_size(shape: tuple[int, ...]) -> None:
    """Raise `InferenceError` if a tensor has too many elements for the kernels."""
    if math.prod(shape) > LARGEST:
        raise InferenceError(f"a tensor of shape {shape_text(shape)} has more than 2^31 - 1 elements")


def broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The common shape. Raises `InferenceError` if the shapes do not fit together."""
    rank = max(map(len, shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for at in range(1, len(shape) + 1):
            if shape[-at] != 1:
                if result[-at] not in (1, shape[-at]):
                    raise InferenceError(f"the shapes {' and '.join(map(shape_text, shapes))} cannot be broadcast")
                result[-at] = shape[-at]
    return tuple(result)
