"""Errors for names of OpenVINO and onnxruntime that give the corresponding name in hetero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ["OF_MODULE", "OF_PROPERTIES", "OtherNames", "of_properties"]

_THREADS = "set INFERENCE_NUM_THREADS and ENABLE_CPU_PINNING, and limit the processors with taskset"
_FALLBACK = "AUTO and MULTI always continue on another device if one fails"
_OPENVINO_CONFIG = "set it for OPENVINO in OPENVINO_CONFIG"
_BATCHING = "hetero does not merge requests: concatenate their inputs"

OF_PROPERTIES: Mapping[str, str] = {
    "MODEL_NAME": "use NETWORK_NAME",
    "ENFORCE_BF16": "use INFERENCE_PRECISION_HINT='bf16'",
    "CPU_THROUGHPUT_STREAMS": "use NUM_STREAMS",
    "CPU_THREADS_NUM": "use INFERENCE_NUM_THREADS",
    **dict.fromkeys(
        (
            *("AFFINITY", "CPU_BIND_THREAD", "ENABLE_HYPER_THREADING", "SCHEDULING_CORE_TYPE"),
            "ENABLE_CPU_RESERVATION",
        ),
        _THREADS,
    ),
    "ENABLE_STARTUP_FALLBACK": "AUTO starts on the CPU if its list has it",
    "ENABLE_RUNTIME_FALLBACK": _FALLBACK,
    "SCHEDULE_POLICY": "MULTI runs each request on the least busy device",
    "DEVICE_BIND_BUFFER": "inputs are read in place by every device that can",
    "ALLOW_AUTO_BATCHING": _BATCHING,
    "AUTO_BATCH_TIMEOUT": _BATCHING,
    "ENABLE_MMAP": "files of models are always memory-mapped",
    **dict.fromkeys(
        (
            *("KV_CACHE_PRECISION", "KEY_CACHE_PRECISION", "VALUE_CACHE_PRECISION", "COMPILATION_NUM_THREADS"),
            *("DYNAMIC_QUANTIZATION_GROUP_SIZE", "CPU_DENORMALS_OPTIMIZATION", "ACTIVATIONS_SCALE_FACTOR"),
            *("CPU_SPARSE_WEIGHTS_DECOMPRESSION_RATE", "ENABLE_TENSOR_PARALLEL", "TBB_PARTITIONER"),
            *("KEY_CACHE_GROUP_SIZE", "VALUE_CACHE_GROUP_SIZE"),
        ),
        _OPENVINO_CONFIG,
    ),
    **dict.fromkeys(
        ("LOW_POWER_DEVICE", "DEVICES_UTILIZATION_THRESHOLD", "PERF_CURVE_TABLE"),
        "AUTO keeps the device that is measured to be the fastest",
    ),
    **dict.fromkeys(("MAX_BATCH_SIZE", "OPTIMAL_BATCH_SIZE"), "measure batches with hetero bench --dim batch=8"),
    "DEVICE_GOPS": "hetero devices shows the speed that the profile of a device states",
    "DEVICE_THERMAL": "ask the tools of the device",
    **dict.fromkeys(("DEVICE_UUID", "DEVICE_LUID"), "use FULL_DEVICE_NAME and DEVICE_ARCHITECTURE"),
    "WORKLOAD_TYPE": "set MODEL_PRIORITY with EXCLUSIVE_ASYNC_REQUESTS",
    "COMPILED_BLOB": "load it with hetero.load",
    "FORCE_TBB_TERMINATE": "threads end with their compiled models",
    **dict.fromkeys(("ENABLE_WEIGHTLESS", "WEIGHTS_PATH", "MODEL_PTR"), "exported models contain their weights"),
    "DEVICE_PRIORITIES": "list the devices, as in HETERO:FPGA,CPU, or use MULTI_DEVICE_PRIORITIES",
    "intra_op_num_threads": "use INFERENCE_NUM_THREADS",
    "log_severity_level": "use LOG_LEVEL",
    "enable_profiling": "use PERF_COUNT",
    **dict.fromkeys(
        ("graph_optimization_level", "execution_mode", "inter_op_num_threads", "enable_mem_pattern"),
        "set it for ORT in ORT_SESSION_OPTIONS",
    ),
}
"""Property of OpenVINO or onnxruntime that no device of hetero has -> what to do."""


def of_properties(name: object) -> str | None:
    """What to do in place of setting or reading a property of another library; None if it is not known."""
    if not isinstance(name, str):
        return None
    return _OPENVINO_CONFIG if name.startswith(("GPU_", "NPU_")) else OF_PROPERTIES.get(name)


OF_MODULE: Mapping[str, str] = {
    "AsyncInferQueue": "compiled.map or compiled.submit",
    "InferenceSession": "hetero.compile(model, device)",
    "SessionOptions": "the configuration of hetero.compile, such as {'INFERENCE_NUM_THREADS': 2}",
    "RunOptions": "the configuration of hetero.compile; request.cancel() stops a run",
    "OrtValue": "arrays, or core.create_context(device).upload(array)",
    "Tensor": "arrays, or core.create_context(device).create_tensor(dtype, shape)",
    "compile_model": "hetero.compile(model, device)",
    "read_model": "hetero.Core().read_model(path)",
    "import_model": "hetero.load(path)",
    "get_available_providers": "hetero.Core().available_devices",
    **dict.fromkeys(("get_version", "get_version_string", "get_build_info"), "hetero.__version__"),
    **dict.fromkeys(("get_device", "get_all_providers"), "hetero.Core().available_devices"),
    "PartialShape": "shapes={'x': (1, 3, 224, 224)} of compile_model",
    **dict.fromkeys(("Type", "Shape", "Dimension", "Layout", "Symbol", "Strides"), "NumPy dtypes and tuples of sizes"),
    **dict.fromkeys(
        ("op", "Node", "Op", *(f"opset{number}" for number in range(1, 18))),
        "onnx.helper to build a graph, and core.read_model(model_proto)",
    ),
    **dict.fromkeys(("ConstOutput", "Input", "Output", "NodeArg"), "compiled.inputs and compiled.outputs"),
    **dict.fromkeys(("get_batch", "set_batch"), "shapes={'batch': 1} of compile_model"),
    **dict.fromkeys(
        (
            "RemoteContext",
            "RemoteTensor",
            "VAContext",
            "VASurfaceTensor",
            "OrtDevice",
            "OrtMemoryInfo",
            "OrtSyncStream",
        ),
        "core.create_context(device)",
    ),
    "ProfilingInfo": "request.profiling_info",
    "Version": "hetero.__version__",
    "frontend": "core.read_model(path)",
    "OpExtension": "hetero.CustomOp",
    **dict.fromkeys(("IOBinding", "SessionIOBinding"), "compiled(inputs, out=arrays)"),
    "ModelMetadata": "model.metadata",
    "ModelCompiler": "compiled.export_model(path)",
    "LoraAdapter": "a model whose weights include the adapter",
    "SparseTensor": "dense arrays",
    "copy_tensors": "core.create_context(device).upload(array)",
    "print_debug_info": "the command `hetero devices`",
    **dict.fromkeys(
        ("register_execution_provider_library", "unregister_execution_provider_library"),
        "the function of onnxruntime; the library's devices are then in hetero.Core().available_devices",
    ),
    "set_global_thread_pool_sizes": "core.set_property(device, {'INFERENCE_NUM_THREADS': 2})",
    "properties": "the names of properties as strings, such as {'NUM_STREAMS': 2}",
    "preprocess": "an ONNX model that includes the steps; on the command line, `hetero run -i x=photo.jpg`",
    "Extension": "hetero.CustomOp",
    "set_seed": "the attribute seed of the random nodes",
    **dict.fromkeys(
        ("set_default_logger_severity", "set_default_logger_verbosity"), "core.set_property('ORT', {'LOG_LEVEL': …})"
    ),
    **dict.fromkeys(
        ("GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder"),
        "names of values, such as {'ORT_SESSION_OPTIONS': {'execution_mode': 'ORT_PARALLEL'}}",
    ),
    **dict.fromkeys(("get_ep_devices", "OrtEpDevice"), "hetero.Core().available_devices"),
    "convert_model": "an exporter of the framework that writes ONNX, such as torch.onnx.export",
    "preload_dlls": "the function of onnxruntime, before hetero.compile",
    "set_default_logger_callback": "core.set_property('ORT', {'LOG_LEVEL': …})",
    "OrtExecutionProviderDevicePolicy": "'AUTO', which measures the devices",
    **dict.fromkeys(("ModelPackage", "ModelPackageContext", "ModelPackageOptions"), "compiled.export_model(path)"),
    "tensor_from_file": "numpy.memmap, or numpy.load with mmap_mode",
    "save_model": "model.save(path)",
    "serialize": "model.save(path)",
}
"""Name in the module openvino or onnxruntime -> what hetero has for it."""


class OtherNames:
    """A class whose missing attributes are named with what to use instead."""

    __slots__ = ()

    other_names: ClassVar[Mapping[str, str]] = {}
    """Attribute of another library -> what hetero has for it."""

    if not TYPE_CHECKING:  # with it, type checkers would accept any attribute

        def __getattr__(self, name: str) -> Any:
            instead = type(self).other_names.get(name)
            hint = f"; use {instead}" if instead else ""
            text = f"{type(self).__name__!r} object has no attribute {name!r}{hint}"
            raise AttributeError(text, name=name, obj=self)
