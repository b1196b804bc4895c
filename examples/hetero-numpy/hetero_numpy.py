"""The device NUMPY: a few float operators by NumPy. A complete plugin for hetero; docs/plugins.md goes through it."""

import time

import numpy as np

from hetero.errors import InferenceError, UnsupportedModel
from hetero.plugin import CompiledModel, Plugin, ProfileRow, Support

OPERATORS = {  # as they are since operator set 13
    "Add": np.add,
    "MatMul": np.matmul,
    "Mul": np.multiply,
    "Relu": lambda x: np.maximum(x, np.float32(0)),
}


class NumpyPlugin(Plugin):
    name = "NUMPY"
    properties = (*Plugin.properties, "PERF_COUNT")
    refuses_when_compiling = True  # so hetero need not query before

    def query_model(self, model, config):
        return Support.from_reasons(model.num_nodes, refusals(model))

    def compile_model(self, model, config, context=None):
        settings = self.full_config(config)
        reasons = {model.key_of(node): {self.name: why} for node, why in refusals(model).items()}
        if reasons:
            raise UnsupportedModel(f"{self.name} cannot compile {model.name!r}: it rejects {reasons}", reasons)
        return NumpyModel(model, settings)


def refusals(model):
    """Node -> why this device does not take it."""
    reasons = {}
    for node in model.nodes:
        if node.domain or node.op_type not in OPERATORS or node.opset < 13:
            reasons[node.index] = f"no {node.op_type} of operator set {node.opset} of {node.domain or 'ONNX'}"
        elif any(model.type_of(value).dtype != np.float32 for value in model.node_inputs[node.index]):
            reasons[node.index] = "only float32"
    return reasons


class NumpyModel(CompiledModel):
    """Nodes in an order in which they can run, and the constants. Runs change nothing, so all requests share it."""

    def __init__(self, model, settings):
        super().__init__("NUMPY", model.inputs, model.outputs, {**settings, "NETWORK_NAME": model.name})
        self.model, self.counted = model, settings["PERF_COUNT"]
        self.constants = {int(value): model.constant(value) for value in np.flatnonzero(model.is_constant)}
        self.steps = [(node.key, node.op_type, model.node_inputs[node.index].tolist()) for node in model.nodes]

    def create_runner(self):
        return NumpyRunner(self)


class NumpyRunner:
    """One request."""

    def __init__(self, compiled):
        self.compiled, self.rows = compiled, []

    def run(self, inputs):
        model, self.rows = self.compiled.model, []
        values = {**self.compiled.constants, **dict(zip(model.input_ids, inputs, strict=True))}
        for node, (key, op_type, reads) in enumerate(self.compiled.steps):
            real, cpu = time.perf_counter(), time.thread_time()
            try:
                with np.errstate(all="ignore"):  # infinities and NaN are results like others
                    result = np.asarray(OPERATORS[op_type](*[values[value] for value in reads]))
            except Exception as error:
                raise InferenceError(f"NUMPY: node {key!r} ({op_type}): {error}") from error
            values[int(model.node_outputs[node][0])] = result
            if self.compiled.counted:
                real, cpu = time.perf_counter() - real, time.thread_time() - cpu
                self.rows.append(ProfileRow(key, "EXECUTED", op_type, "numpy", real * 1e6, cpu * 1e6))
        return [values[value] for value in model.output_ids]

    def profile(self):
        return self.rows


def create_plugin():
    return NumpyPlugin()
