"""onnxruntime with one more execution provider, which computes with the kernels of the CPU."""

from __future__ import annotations

import types
from typing import Any

import onnx
import onnxruntime


class Posing:
    """onnxruntime with one more provider: the CPU's, with additional kernels for Max of int16 and for GroupNorm.

    ``left``: operators that it leaves to the CPU, unless they are tried by themselves.
    """

    def __init__(self, left: tuple[str, ...] = ()) -> None:
        self.asked: list[str] = []
        self.left = left

    def __getattr__(self, name: str) -> Any:
        return getattr(onnxruntime, name)

    def get_available_providers(self) -> list[str]:
        return ["PosingExecutionProvider", *onnxruntime.get_available_providers()]

    def InferenceSession(self, encoded: bytes, options: Any, providers: list[Any], enable_fallback: int) -> Any:
        assert not enable_fallback  # to other providers, with a banner on standard output
        names = [entry if isinstance(entry, str) else entry[0] for entry in providers]
        if "PosingExecutionProvider" not in names:
            return onnxruntime.InferenceSession(encoded, options, providers=providers)
        proto = onnx.ModelProto.FromString(encoded)
        left = () if proto.graph.name == "probes" else self.left
        taken = [each for each in proto.graph.node if each.op_type in {"Max", "Neg", "Relu", "GroupNorm"} - {*left}]
        self.asked += [each.op_type for each in proto.graph.node]
        rest = [each for each in proto.graph.node if each not in taken]
        info = [
            types.SimpleNamespace(ep_name=name, get_nodes=lambda nodes=nodes: nodes)
            for name, nodes in (("PosingExecutionProvider", taken), ("CPUExecutionProvider", rest))
            if nodes
        ]
        for each in proto.graph.node:
            if each.op_type == "GroupNorm" and each.input[1] in {port.name for port in proto.graph.input}:
                raise RuntimeError(f"no kernel for the node (node:'{each.name}'): its weights must be constant")
            if each.op_type in ("Max", "GroupNorm"):
                each.op_type, each.domain = "Identity", ""
                del each.input[1:], each.attribute[:]
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        return types.SimpleNamespace(
            run=session.run,
            _sess=session._sess,
            io_binding=session.io_binding,
            end_profiling=session.end_profiling,
            get_inputs=session.get_inputs,
            get_outputs=session.get_outputs,
            get_providers=lambda: names,
            get_provider_graph_assignment_info=lambda: info,
        )
