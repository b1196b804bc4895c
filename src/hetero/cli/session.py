"""The `Core` of one command, with its profiles and custom operators, and its model: planned, compiled or imported."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from ..base.file_kinds import is_exported
from ..core import Core, with_shapes
from ..errors import ModelError
from ..model.model import Model
from ..plan import Plan, PlanRecord
from ..plugin.contract import CompiledModel, Port
from .planning import Planning
from .progress import working

if TYPE_CHECKING:
    from .inputs import InputChoice

__all__ = ["Session", "core_with"]

_HEAD = 64  # B of an exported model that suffice to recognize it


class Session:
    """The devices and the model of one command. The model is read once."""

    def __init__(self, path: str, planning: Planning) -> None:
        """Raises `PropertyError` for a profile that cannot be used."""
        self.path = path
        self.core = core_with(planning)
        self._follow_links = planning.follow_links
        self._model: Model | None = None
        self._ports: Sequence[Port] | None = None  # without the sizes of `state_sizes`

    @property
    def is_artifact(self) -> bool:
        """Whether the file is an exported model, judged by its first bytes."""
        try:
            with open(self.path, "rb") as stream:
                return is_exported(memoryview(stream.read(_HEAD)))
        except OSError:
            return False  # reading the model then raises the error

    @property
    def model(self) -> Model:
        """The ONNX model. Raises `ModelError`."""
        if self._model is None:
            if self.is_artifact:
                raise ModelError(f"{self.path} is an exported model, which cannot be planned again: give the ONNX file")
            self._model = self.core.read_model(self.path, follow_links=self._follow_links)
        return self._model

    def state_sizes(self, choice: InputChoice) -> None:
        """Sets the sizes for which the model is planned and compiled, if options give any. An exported model keeps the
        sizes for which it was planned."""
        if (choice.inputs or choice.shapes or choice.dims) and not self.is_artifact:
            model = self.model
            if defaults := model.default_inputs:
                named = choice.named_inputs([*(port.name for port in model.inputs), *defaults])
                model = model.with_inputs(name for name in defaults if name in named)
            self._ports = model.inputs
            self._model = with_shapes(model, choice.stated_shapes(model.inputs))

    def make_inputs(self, choice: InputChoice) -> dict[str, Any]:
        """Arrays for the inputs, to whose sizes the model is set."""
        arrays = {entry.name: entry.array for entry in choice.make(self.inputs)}
        self._model = with_shapes(self.model, {name: array.shape for name, array in arrays.items()})
        return arrays

    @property
    def inputs(self) -> Sequence[Port]:
        """The inputs of the model, with the symbolic dims of the file."""
        return self.model.inputs if self._ports is None else self._ports

    def ports(self, compiled: CompiledModel) -> Sequence[Port]:
        """The inputs of a compiled model, with the symbolic dims of the file."""
        return compiled.inputs if self._ports is None else self._ports

    def plan(self, planning: Planning, config: Mapping[str, Any]) -> Plan:
        """A new plan, or a plan from a file, checked against the model."""
        target: str | PlanRecord = planning.device or "CPU"
        if planning.plan_path is not None:
            if planning.pins:
                raise click.UsageError("a plan contains its pins: give either --plan or --pin")
            target = Plan.load(planning.plan_path)
        with working("Planning"):
            return self.core.plan(self.model, target, {**config, **planning.constraints()}, pins=planning.pinned())

    def compile(self, planning: Planning, config: Mapping[str, Any]) -> tuple[CompiledModel, float]:
        """The compiled model, and the time in s. The device defaults to CPU, or the device of an exported model."""
        is_artifact = self.is_artifact
        if not is_artifact:
            _ = self.model  # read first, so that the time excludes reading
        constraints = planning.constraints()
        if is_artifact and (planning.plan_path is not None or planning.pins or constraints):
            raise click.UsageError(
                "an exported model contains its plan: --plan, --pin, --together and --min-subgraph require an ONNX "
                "model"
            )
        target: str | PlanRecord = planning.device or "CPU"
        if planning.plan_path is not None:
            planning.require()
            target = self.plan(planning, config)
        begin = time.perf_counter()
        with working("Loading" if is_artifact else f"Compiling for {planning.label or 'CPU'}"):
            if is_artifact:
                compiled = self.core.import_model(self.path, planning.device, config)
            else:
                config = {**config, **constraints}
                compiled = self.core.compile_model(self.model, target, config, pins=planning.pinned())
        return compiled, time.perf_counter() - begin

    def compile_reference(self, device: str) -> CompiledModel:
        """The model compiled for a device, without the affinities in the file."""
        return self.core.compile_model(self.model.with_affinity({}), device)


def core_with(planning: Planning) -> Core:
    """A `Core` with the given profiles, each under its own name, and custom operators."""
    core = Core()
    for path in planning.profiles:
        from pathlib import Path

        from ..devices.profile import load_profile

        core.register_plugin(load_profile(path).name, Path(path))
    for extension in planning.extensions:
        from .extensions import load_extension

        for op in load_extension(extension):
            core.add_extension(op)
    return core
