"""Devices for tests of worker processes, which import them by name."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hetero.model.model import Model
from hetero.plugin import CompiledModel, Plugin, RemoteContext, Runner, Support


class _Runner:
    """Copies its input; what is in it says what goes wrong."""

    def run(self, inputs: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        first = inputs[0].flat[0] if inputs[0].size else 0
        if first == -101:
            signal.pthread_kill(threading.get_ident(), signal.SIGSEGV)  # before anything else can be done
        if first == -102:
            time.sleep(600)
        if first == -104:
            time.sleep(0.5)
        if first == -105:  # as compilers of kernels do
            child = os.fork()
            if not child:
                os._exit(3)
            return [np.full_like(inputs[0], os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))]
        if first == -103:
            raise RuntimeError("no such luck")
        return [inputs[0].copy()]

    def profile(self) -> Sequence[Any]:
        return ()


class _Compiled(CompiledModel):
    def create_runner(self) -> Runner:
        return _Runner()


class _PlacingRunner(_Runner):
    """Makes 100 more than its input where it is told to, and the input itself otherwise."""

    def run_into(self, inputs: Sequence[np.ndarray], places: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        if places[0].nbytes < inputs[0].nbytes:
            return self.run(inputs)
        result: np.ndarray = np.ndarray(inputs[0].shape, inputs[0].dtype, places[0])
        result[...] = inputs[0] + 100
        return [result]


class _PlacingCompiled(CompiledModel):
    def create_runner(self) -> Runner:
        return _PlacingRunner()


class FragilePlugin(Plugin):
    """Takes Identity. A model called ``crash`` ends the process that compiles it."""

    name = "FRAGILE"

    def query_model(self, model: Model, config: Mapping[str, Any]) -> Support:
        taken = [node.op_type == "Identity" for node in model.nodes]
        return Support.from_reasons(model.num_nodes, {i: "no Identity" for i, fits in enumerate(taken) if not fits})

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        if model.name == "crash":
            os._exit(3)
        return _Compiled(self.name, model.inputs, model.outputs, self.full_config(config))


def create_plugin() -> FragilePlugin:
    return FragilePlugin()


class PlacingPlugin(FragilePlugin):
    """`FragilePlugin` whose runners take places for results."""

    name = "PLACING"

    def compile_model(
        self, model: Model, config: Mapping[str, Any], context: RemoteContext | None = None
    ) -> CompiledModel:
        return _PlacingCompiled(self.name, model.inputs, model.outputs, self.full_config(config))


def create_placing_plugin() -> PlacingPlugin:
    return PlacingPlugin()
