"""The custom operators of a device, or of all devices of a `Core`."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..base.decoding import decode_json
from ..errors import ArtifactError, Corrupt, ExtensionError, NotSupported, WrongVersion
from .custom_op import CustomOp

if TYPE_CHECKING:
    from ..artifact.payload import PayloadReader
    from ..model.model import Model
    from .elsewhere import OpDescription

__all__ = ["CUSTOM_OPS", "CustomOps", "check_new", "describe_ops", "require_ops"]

CUSTOM_OPS = "custom_ops"
"""The key in the version of an exported model that lists its custom operators."""


class CustomOps:
    """Custom operators by domain and name. Thread-safe; operators are never removed."""

    def __init__(self, owner: str) -> None:
        """``owner``: the device, for errors."""
        self._owner = owner
        self._lock = threading.Lock()
        self._ops: Mapping[tuple[str, str], tuple[CustomOp, ...]] = {}  # copied on write, so that readers need no lock

    def __bool__(self) -> bool:
        return bool(self._ops)

    def add(self, extension: Any) -> None:
        """Add an operator. Adding the same object again has no effect. Raises `NotSupported` unless it is a `CustomOp`,
        and `ExtensionError` if another object has the same name and version."""
        if not isinstance(extension, CustomOp):
            raise NotSupported(
                f"{self._owner} supports only custom operators (hetero.CustomOp), found {type(extension).__name__}"
            )
        key = (extension.domain, extension.op_type)
        with self._lock:
            known = self._ops.get(key, ())
            if extension in known:
                return
            check_new(extension, known, self._owner)
            versions = sorted((*known, extension), key=lambda op: -op.since_version)
            self._ops = {**self._ops, key: tuple(versions)}

    def has(self, domain: str, op_type: str) -> bool:
        """Whether an operator of this name was added, of any version."""
        return (domain, op_type) in self._ops

    def first_in(self, model: Model) -> CustomOp | None:
        """One of the operators that the nodes of a model need, nested graphs excluded; None if they need none."""
        for name in model.op_types:
            domain, custom, op_type = name.rpartition("::")
            op = self.find(domain, op_type, model.opsets.get(domain)) if custom else ""
            if isinstance(op, CustomOp) and (domain, op_type) not in model.functions:
                return op
        return None

    def described_in(self, model: Model) -> list[OpDescription]:
        """The operators of the domains that a model imports, as data for another process. Raises `NotSupported` for an
        operator that a node needs and another process cannot recreate. Omits other such operators."""
        from .elsewhere import describe

        described = []
        for (domain, op_type), versions in self._ops.items():
            op = self.find(domain, op_type, model.opsets.get(domain)) if domain in model.opsets else ""
            if isinstance(op, str):
                continue
            try:
                described += [describe(version) for version in versions]
            except NotSupported:
                if f"{domain}::{op_type}" in model.op_types and (domain, op_type) not in model.functions:
                    raise
        return described

    def find(self, domain: str, op_type: str, version: int | None) -> CustomOp | str:
        """The operator for a model that imports ``version`` of the domain (None: not imported), or the reason why there
        is none."""
        known = self._ops.get((domain, op_type))
        if known is None:
            return f"no custom operator {domain}::{op_type} was added (Core.add_extension)"
        if version is None:
            return f"the model does not import an opset of domain {domain!r}"
        for op in known:
            if op.since_version <= version:
                return op
        return (
            f"the custom operator {domain}::{op_type} exists since version {known[-1].since_version} of its domain, "
            f"but the model imports version {version}"
        )


def check_new(op: CustomOp, known: Iterable[CustomOp], owner: str) -> None:
    """Raise `ExtensionError` if one of ``known`` has the name and version of ``op``."""
    for other in known:
        if (other.domain, other.op_type, other.since_version) == (op.domain, op.op_type, op.since_version):
            raise ExtensionError(
                f"{owner} already has a custom operator {op.name} since version {op.since_version}; use another "
                f"since_version, or a Core without that operator"
            )


def describe_ops(ops: Iterable[CustomOp]) -> str:
    """The required operators for an exported model: a JSON list of [name, since_version, version]."""
    import json

    return json.dumps(sorted({(op.name, op.since_version, op.version) for op in ops}))


def require_ops(reader: PayloadReader, ops: CustomOps) -> None:
    """Raise `ArtifactError` if ``ops`` lacks an operator that an exported model needs, and `WrongVersion` if one has
    another version."""
    described = reader.version.get(CUSTOM_OPS)
    if described is None:
        return
    import msgspec

    whose = f"{reader.label}: the model for {reader.device}"
    try:
        required = decode_json(described, list[tuple[str, int, str]])
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{whose}: its custom operators: {error}") from error
    for name, since, version in required:
        domain, _, op_type = name.rpartition("::")
        op = ops.find(domain, op_type, since)
        if isinstance(op, str):
            raise ArtifactError(
                f"{whose} requires the custom operator {name}, version {version!r}: {op}; add it with "
                f"Core.add_extension before importing the model"
            )
        if (op.since_version, op.version) != (since, version):
            raise WrongVersion(
                f"{whose} was compiled with the custom operator {name} since {since}, version {version!r}, but this "
                f"Core has it since {op.since_version}, version {op.version!r}: compile and export the model again"
            )
