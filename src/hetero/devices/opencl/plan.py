"""A plan: the steps of a model for one set of input shapes, with their memory."""

from __future__ import annotations

from collections.abc import Sequence

from .device import Device
from .memory import Block
from .steps import KernelStep, Step
from .tensors import CONSTANT, INPUT, RESULT, SCRATCH, Slot, Tensor

__all__ = ["Plan"]


class Plan:
    """Steps whose kernels and memory are ready. It belongs to one runner, which runs it once at a time.

    ``inputs``: the tensors of the model's inputs. ``outputs``: of its results. ``first_use``: ``id`` of a slot -> the
    first step that uses it. ``finished``: step -> the slots of results that no later step writes. ``launches``: of each
    step that is one kernel, the kernel and its sizes, else None.
    """

    def __init__(
        self,
        device: Device,
        steps: Sequence[Step],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        failed: Slot | None,
    ) -> None:
        self.steps = steps
        self.inputs = inputs
        self.outputs = outputs
        self.failed = failed
        for tensor in outputs:
            if tensor.slot is not None and tensor.slot.role == SCRATCH:
                tensor.slot.role = RESULT
        slots: dict[int, Slot] = {}
        for step in steps:
            for slot in step.slots:
                slots[id(slot)] = slot
        for tensor in (*inputs, *outputs):
            if tensor.slot is not None:
                slots.setdefault(id(tensor.slot), tensor.slot)
        self.slots = list(slots.values())
        if failed is not None:
            failed.role = RESULT
        self.own_blocks: dict[int, Block] = {}
        """The memory of slots whose blocks may change, as allocated: it is used whenever nothing else is bound."""
        self._allocate(device)
        device.build([step.source for step in steps if isinstance(step, KernelStep)])
        for step in steps:
            step.prepare(device)
        self.launches = [step.launch if isinstance(step, KernelStep) else None for step in steps]
        self.first_use = {id(slot): min(use for use, _ in slot.uses) for slot in self.slots if slot.uses}
        self.finished: dict[int, list[Slot]] = {}
        for slot in self.slots:
            if slot.role == RESULT and slot.writers:
                self.finished.setdefault(max(slot.writers), []).append(slot)

    def bind(self, slot: Slot, block: Block) -> None:
        """Use ``block`` as the memory of a slot from now on."""
        if slot.block is not block:
            slot.block = block
            for step, position in slot.uses:
                self.steps[step].bind(position, block.buffer)

    def _allocate(self, device: Device) -> None:
        """Give memory to all slots that have none. Scratch memory is reused after the last step that uses it."""
        lasts: dict[int, list[Slot]] = {}
        scratch: dict[int, list[Slot]] = {}
        for slot in self.slots:
            if slot.block is not None or slot.role == CONSTANT:
                continue
            if slot.role in (INPUT, RESULT):
                slot.block = self.own_blocks[id(slot)] = device.memory.allocate(slot.nbytes)
            elif slot.uses:
                numbers = [use for use, _ in slot.uses]
                scratch.setdefault(min(numbers), []).append(slot)
                lasts.setdefault(max(numbers), []).append(slot)
        free: list[Block] = []
        for number in range(len(self.steps)):
            for slot in scratch.get(number, ()):
                fitting = [block for block in free if slot.nbytes <= block.nbytes <= 2 * slot.nbytes + 4096]
                if fitting:
                    slot.block = min(fitting, key=lambda block: block.nbytes)
                    free.remove(slot.block)
                else:
                    slot.block = device.memory.allocate(slot.nbytes)
            free.extend(slot.block for slot in lasts.get(number, ()) if slot.block is not None)
