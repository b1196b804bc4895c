"""The bytes of one ONNX file and their index. A model and all models extracted from it share them."""

from __future__ import annotations

import functools
import os
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._onnx import NodeKeys, OnnxIndex, WireError, read_fields, read_varints
from ..base.file_kinds import describe_kind, describe_neighbor, expected
from ..errors import ModelError, ModelTooLarge
from .external import find_locations

__all__ = ["ModelFile"]

# The key of the hash tables of every index, so that an attacker cannot construct a file whose names collide.
_HASH_KEY = os.urandom(16)

# The versions that the oldest supported onnx (1.17) knows. Newer versions are looked up in the installed onnx, whose
# import takes longer than reading a million nodes.
_KNOWN_IR_VERSION = 10
_KNOWN_OPSETS = {"": 22, "ai.onnx.ml": 5}

# It has one version. onnxruntime does not require the import, and its optimizer omits it in models in memory.
_ONNXRUNTIME = "com.microsoft"


class ModelFile:
    """A file's bytes, arrays and header. Immutable.

    ``data``: the bytes (the mapped file, or the bytes passed). ``folder``: the folder of external data, None if
    unknown. ``follow_links``: whether to follow links to external data. ``external_data``: location -> contents of data
    that is in memory. ``label``: the name of the file in messages.
    The arrays are the read-only arrays of `OnnxIndex`; ``_core/onnx/index.h`` describes them.
    """

    node_start: NDArray[np.int64]
    node_end: NDArray[np.int64]
    node_header: NDArray[np.uint8]
    node_op: NDArray[np.int32]
    input_indptr: NDArray[np.int32]
    inputs: NDArray[np.int32]
    output_indptr: NDArray[np.int32]
    outputs: NDArray[np.int32]
    capture_indptr: NDArray[np.int32]
    captures: NDArray[np.int32]
    value_name: NDArray[np.int64]
    value_producer: NDArray[np.int32]
    value_constant: NDArray[np.int32]
    value_info: NDArray[np.int32]
    constant_value: NDArray[np.int32]
    constant_source: NDArray[np.uint8]
    constant_start: NDArray[np.int64]
    constant_end: NDArray[np.int64]
    constant_kind: NDArray[np.uint8]
    constant_dtype: NDArray[np.int32]
    constant_begin: NDArray[np.int64]
    constant_until: NDArray[np.int64]
    constant_data_begin: NDArray[np.int64]
    constant_data_end: NDArray[np.int64]
    constant_dims_indptr: NDArray[np.int32]
    constant_dims: NDArray[np.int64]
    info_section: NDArray[np.uint8]
    info_value: NDArray[np.int32]
    info_start: NDArray[np.int64]
    info_end: NDArray[np.int64]
    info_type_begin: NDArray[np.int64]
    info_type_end: NDArray[np.int64]
    affinity_node: NDArray[np.int32]
    affinity_kind: NDArray[np.uint8]
    affinity_value: NDArray[np.int64]
    affinity_start: NDArray[np.int64]
    affinity_end: NDArray[np.int64]
    function_begin: NDArray[np.int64]
    function_end: NDArray[np.int64]
    header_start: NDArray[np.int64]
    header_end: NDArray[np.int64]
    rest_start: NDArray[np.int64]
    rest_end: NDArray[np.int64]

    def __init__(
        self,
        data: memoryview,
        *,
        label: str,
        path: str | None = None,
        folder: str | None = None,
        follow_links: bool = False,
        external_data: Mapping[str, memoryview] = types.MappingProxyType({}),
    ) -> None:
        self.data = data
        self.label = label
        self.path = path
        self.folder = folder
        self.follow_links = follow_links
        self.external_data = external_data
        try:
            self.index = OnnxIndex(data, _HASH_KEY)
        except WireError as error:
            other = describe_kind(data) or (None if path is None else describe_neighbor(path))
            if other is not None:
                raise self.error(expected("an ONNX file", other)) from error
            may_be_truncated = str(error).startswith("the model: ") and "there is no graph" not in str(error)
            hint = "; the file may be truncated, or not an ONNX file" if may_be_truncated else ""
            raise self.error(f"{error}{hint}") from error
        except MemoryError as error:
            raise ModelTooLarge(str(self.error("not enough memory to index the file"))) from error
        arrays = self.index.arrays
        for name in type(self).__annotations__:
            setattr(self, name, arrays[name])
        text = self.index.text
        self.ir_version = self.index.ir_version
        self.op_domains = tuple(text(int(span)) for span in arrays["op_domain"])
        self.op_names = tuple(text(int(span)) for span in arrays["op_type"])
        self.op_types = tuple(
            f"{domain}::{op}" if domain else op for domain, op in zip(self.op_domains, self.op_names, strict=True)
        )
        self.functions = tuple(
            (text(int(domain)), text(int(name)))
            for domain, name in zip(arrays["function_domain"], arrays["function_name"], strict=True)
        )
        self._check_functions(arrays)
        self._check_ir_version()
        self.opsets = self._read_opsets(arrays)

    def error(self, message: str) -> ModelError:
        """A `ModelError` that names this file."""
        return ModelError(f"{self.label}: {message}")

    @functools.cached_property
    def keys(self) -> NodeKeys:
        """Node keys; see `NodeKeys`."""
        try:
            return NodeKeys(self.index)
        except WireError as error:
            raise self.error(str(error)) from error

    @functools.cached_property
    def metadata(self) -> Mapping[str, str]:
        """The file's metadata_props. If a key occurs twice, the last entry counts."""
        entries: dict[str, str] = {}
        for entry in read_fields(self.data, 0, len(self.data), 14):
            key, value = (self._text_field(*entry, number) for number in (1, 2))
            entries[key] = value
        return types.MappingProxyType(entries)

    @property
    def model_version(self) -> int:
        """The author's version of the model; 0 if the file has none."""
        stated = read_varints(self.data, 0, len(self.data), 5)
        return int(stated[-1]) if len(stated) else 0

    def header_text(self, number: int) -> str:
        """A string field of the ModelProto; "" if absent."""
        return self._text_field(0, len(self.data), number)

    def _text_field(self, begin: int, end: int, number: int) -> str:
        fields = read_fields(self.data, begin, end, number)
        if not fields:
            return ""
        start, stop = fields[-1]
        try:
            return bytes(self.data[start:stop]).decode()
        except UnicodeDecodeError as error:
            raise self.error(f"the string at byte {start} is not UTF-8") from error

    @functools.cached_property
    def external_candidates(self) -> tuple[list[int], list[int]]:
        """Nodes and functions whose attributes may hold tensors with external data; see `find_locations`."""
        return (
            find_locations(self.data, self.node_start, self.node_end),
            find_locations(self.data, self.function_begin, self.function_end),
        )

    def describe_node(self, node: int) -> str:
        """The description of a node of the file in messages: ``node 'key' (op)``."""
        return f"node {self.keys.key_of(node)!r} ({self.op_types[self.node_op[node]]})"

    def node_body(self, node: int) -> memoryview:
        """The bytes of a node's NodeProto."""
        begin, end = self.node_range(node)
        return self.data[begin:end]

    def node_range(self, node: int) -> tuple[int, int]:
        """The first byte and the end of a node's NodeProto in the file."""
        starts, headers, ends = self._node_places
        return starts[node] + headers[node], ends[node]

    @functools.cached_property
    def _node_places(self) -> tuple[memoryview, memoryview, memoryview]:
        """As memoryviews, because indexing them is faster than indexing arrays."""
        return self.node_start.data, self.node_header.data, self.node_end.data

    def _check_functions(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        known: set[tuple[str, str, str]] = set()
        for (domain, name), span in zip(self.functions, arrays["function_overload"], strict=True):
            overload = self.index.text(int(span))
            if (domain, name, overload) in known:
                raise self.error(f"function {domain}::{name} is defined twice")
            known.add((domain, name, overload))

    def _check_ir_version(self) -> None:
        if self.ir_version < 1:
            raise self.error(f"ir_version is missing or invalid: {self.ir_version}")
        if self.ir_version > _KNOWN_IR_VERSION:
            import onnx

            if self.ir_version > onnx.IR_VERSION:
                raise self.error(
                    f"ir_version {self.ir_version} is newer than onnx {onnx.__version__} supports "
                    f"({onnx.IR_VERSION}): install a newer onnx, or export the model for an older version"
                )

    def _read_opsets(self, arrays: Mapping[str, NDArray[Any]]) -> Mapping[str, int]:
        opsets: dict[str, int] = {}
        for span, version in zip(arrays["opset_domain"], arrays["opset_version"], strict=True):
            domain = self.index.text(int(span))
            domain = "" if domain == "ai.onnx" else domain
            if opsets.setdefault(domain, int(version)) != version:
                raise self.error(f"opset of domain {domain!r} is imported in versions {opsets[domain]} and {version}")
        if not opsets and self.ir_version < 3:
            opsets[""] = 1  # these versions have no opset imports
        for domain, version in opsets.items():
            name = f"opset {version} of domain {domain or 'ai.onnx'!r}"
            newest = _newest_opset(domain, version)
            if not 1 <= version <= newest:
                import onnx

                raise self.error(
                    f"{name} is not supported: onnx {onnx.__version__} supports 1 to {newest}; install a newer onnx, "
                    "or export the model for an older opset"
                    if domain in _KNOWN_OPSETS
                    else f"{name} is not valid: expected 1 to {newest}"
                )
        if _ONNXRUNTIME in self.op_domains:
            opsets.setdefault(_ONNXRUNTIME, 1)
        for op, domain in enumerate(self.op_domains):
            if domain not in opsets:
                node = int(arrays["op_first_node"][op])
                raise self.error(
                    f"{self.describe_node(node)}: the model does not import an opset of domain {domain or 'ai.onnx'!r}"
                )
        if "" not in opsets and len(self.constant_source) and self.constant_source.max() == 2:
            raise self.error("the model has Constant nodes, but does not import an opset of domain 'ai.onnx'")
        return types.MappingProxyType(opsets)


def _newest_opset(domain: str, version: int) -> int:
    """The newest supported opset of a domain. Domains outside ONNX have no limit."""
    known = _KNOWN_OPSETS.get(domain)
    if known is None:
        return 2**31 - 1
    if version <= known:
        return known
    import onnx.defs

    if not domain:
        return onnx.defs.onnx_opset_version()
    return max(schema.since_version for schema in onnx.defs.get_all_schemas_with_history() if schema.domain == domain)
