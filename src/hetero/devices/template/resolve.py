"""Finds the implementation of a node for its opset.

The order is: the model's functions, custom operators, `contrib`, `control_flow`, `corrections`, the classes of
``onnx.reference``, and the function body in the operator's schema. The classes of ``onnx.reference`` always use the
attribute defaults of the newest schema. Therefore, the defaults of the node's own opset are written into the node.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
import onnx.defs
import onnx.helper
from onnx.reference.op_run import OpRun, RuntimeContextError

from ...errors import did_you_mean, raise_out_of_memory
from ...extension.binding import BoundOp, bind
from ..operator_forms import IGNORED_ATTRIBUTES, form_of
from .contrib import matched
from .control_flow import RULES
from .corrections import correction
from .program import Program, Refused, Scope

__all__ = ["Implementation", "find", "implementation", "refusal"]


@dataclasses.dataclass(frozen=True, slots=True)
class Implementation:
    """The implementation of one version of an operator: exactly one of ``run_class``, ``body`` and
    ``body_needs_types``.

    ``accepted``: the attributes that the class supports; None: all.
    ``plain``: every node that matches the schema can run, so a query need not create the implementation.
    """

    schema: Any  # onnx.defs.OpSchema, whose type stubs are incomplete
    run_class: type[OpRun] | None = None
    accepted: frozenset[str] | None = None
    body: onnx.FunctionProto | None = None
    body_needs_types: bool = False

    plain: bool = False


@functools.cache
def find(domain: str, op_type: str, version: int) -> Implementation | str:
    """The implementation of an operator in opset ``version`` of ``domain``, or the reason why there is none."""
    if not onnx.defs.has(op_type, version, domain):
        return _unknown(domain, op_type, version)
    schema = onnx.defs.get_schema(op_type, version, domain)
    if schema.deprecated:
        return f"{op_type} is deprecated since opset {schema.since_version}; the model imports opset {version}"
    if op_type == "ImageDecoder" and importlib.util.find_spec("PIL") is None:
        return "onnx.reference decodes images with Pillow, which is not installed: pip install pillow"
    corrected = correction(domain, op_type, version)
    if corrected is not None:
        return _of_class(schema, corrected)
    try:
        return _upstream(schema, domain, op_type, version)
    except (NotImplementedError, RuntimeError, ValueError, ImportError) as error:
        return f"onnx.reference does not implement {op_type} of opset {version}: {str(error).splitlines()[0]}"


def _upstream(schema: Any, domain: str, op_type: str, version: int) -> Implementation:
    loader = _LOADERS.get(domain)
    if loader is None:
        raise NotImplementedError(f"domain {domain!r} is unknown to onnx.reference")
    run_class: Any = None
    # For an operator that is defined by a function body, the loaders require an evaluator and fail.
    with contextlib.suppress(AssertionError, RuntimeContextError):
        run_class = loader()(domain, op_type, version)
    if isinstance(run_class, type) and issubclass(run_class, OpRun):
        return _of_class(schema, run_class)
    if schema.has_function:
        return Implementation(schema, body=schema.function_body)
    if schema.has_context_dependent_function:
        return Implementation(schema, body_needs_types=True)
    raise NotImplementedError("neither an implementation nor a function body")


def _of_class(schema: Any, run_class: type[OpRun]) -> Implementation:
    has_graphs = any(attribute.type == onnx.defs.OpSchema.AttrType.GRAPH for attribute in schema.attributes.values())
    return Implementation(schema, run_class, _accepted(run_class), plain=not has_graphs)


def _main_loader() -> Callable[..., Any]:
    from onnx.reference.ops import load_op

    return load_op


def _ml_loader() -> Callable[..., Any]:
    from onnx.reference.ops.aionnxml import load_op

    return load_op


def _training_loader() -> Callable[..., Any]:
    from onnx.reference.ops.aionnx_preview_training import load_op

    return load_op


def _preview_loader() -> Callable[..., Any]:
    from onnx.reference.ops.aionnx_preview import load_op  # onnx 1.22 and later

    return load_op


_LOADERS = {
    "": _main_loader,
    "ai.onnx.ml": _ml_loader,
    "ai.onnx.preview.training": _training_loader,
    "ai.onnx.preview": _preview_loader,
}


def _unknown(domain: str, op_type: str, version: int) -> str:
    schemas = onnx.defs.get_all_schemas_with_history()
    known = sorted({schema.name for schema in schemas if schema.domain == domain})
    since = [schema.since_version for schema in schemas if schema.domain == domain and schema.name == op_type]
    if since:
        return f"{op_type} exists since opset {min(since)}; the model imports opset {version}"
    return f"{domain or 'ai.onnx'} has no operator {op_type}{did_you_mean(op_type, known)}"


def _accepted(run_class: type[OpRun]) -> frozenset[str] | None:
    """The names of the attributes that an implementation supports; None if its signature does not list them."""
    if run_class.run is not OpRun.run:  # its _run does not receive the attributes
        return None
    parameters = inspect.signature(run_class._run).parameters.values()
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return frozenset(parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL)


def refusal(node: onnx.NodeProto, scope: Scope) -> str | None:
    """Why ``node`` cannot run, or None. Creates an implementation only for nested graphs and function bodies."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = scope.version_of(domain)
    function = (node.domain, node.op_type, getattr(node, "overload", ""))
    if function not in scope.library.functions and (domain not in _LOADERS or _is_unknown(node, domain)):
        bound = _bind_foreign(node, scope, domain)
        return bound if isinstance(bound, str) else None
    if version is not None and function not in scope.library.functions and (domain, node.op_type) not in RULES:
        known = find(domain, node.op_type, version)
        if isinstance(known, str):
            return known
        if known.plain:
            return _mismatch(node, known, version)
    try:
        implementation(node, scope)
    except Refused as refused:
        return refused.reason
    return None


def implementation(node: onnx.NodeProto, scope: Scope) -> tuple[Callable[..., Sequence[Any]], tuple[str, ...]]:
    """A callable for ``node``, and the names of the outer values that its nested graphs read.

    The callable receives the node's inputs (None for an absent input) and the outer values, and returns the outputs. It
    is stateless and thread-safe. Raises `Refused` with the reason.
    """
    domain = "" if node.domain == "ai.onnx" else node.domain
    function = (node.domain, node.op_type, getattr(node, "overload", ""))
    if function in scope.library.functions:
        return _call_of(scope.library.local_program(function, node), len(node.input)), ()
    if domain not in _LOADERS or _is_unknown(node, domain):
        bound = _bind_foreign(node, scope, domain)
        if isinstance(bound, str):
            raise Refused(bound)
        return bound, ()
    version = scope.version_of(domain)
    if version is None:
        raise Refused(f"the model does not import an opset of domain {domain!r}")
    control = RULES.get((domain, node.op_type))
    if control is not None and onnx.defs.has(node.op_type, version, domain):
        operator = control(node, scope, version)
        return operator, operator.captures
    known = find(domain, node.op_type, version)
    if isinstance(known, str):
        raise Refused(known)
    return _bind(known, node, scope), ()


def _is_unknown(node: onnx.NodeProto, domain: str) -> bool:
    """Whether ONNX's own domain lacks the operator of a definition in `contrib`."""
    return not onnx.defs.has(node.op_type, domain) and matched(node) is not None


def _bind_foreign(node: onnx.NodeProto, scope: Scope, domain: str) -> Callable[..., Sequence[Any]] | str:
    """The custom operator or the definition for a node that onnx does not know, or the reason why there is none."""
    bound = _bind_custom(node, scope, domain)
    if not isinstance(bound, str):
        return lambda *inputs: bound.run(inputs)
    return matched(node) or bound


def _bind_custom(node: onnx.NodeProto, scope: Scope, domain: str) -> BoundOp | str:
    """The custom operator for a node of a domain that onnx does not know, or the reason why there is none."""
    op = scope.library.custom_ops.find(domain, node.op_type, scope.version_of(domain))
    if isinstance(op, str):
        return f"onnx does not know domain {domain!r}, the model has no function {domain}::{node.op_type}, and {op}"
    scope.library.used[op] = None
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    return bind(op, attributes, len(node.input), len(node.output))


def _mismatch(node: onnx.NodeProto, known: Implementation, version: int) -> str | None:
    """Why a node does not match its operator in opset ``version`` or the implementation; None if it does."""
    form = form_of(known.schema.domain, known.schema.name, version)
    if form is not None:
        inputs, outputs = ([bool(name) for name in names] for names in (node.input, node.output))
        reason = form.trouble(inputs, outputs, [(attribute.name, attribute.type) for attribute in node.attribute])
        if reason is not None:
            return reason
    for attribute in node.attribute:
        name = attribute.name
        if known.accepted is not None and name in known.schema.attributes and name not in known.accepted:
            return f"onnx.reference ignores its attribute {name!r}"
    refusal: Callable[[Mapping[str, Any]], str | None] | None = getattr(known.run_class, "refusal", None)
    if refusal is None:
        return None
    return refusal({attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute})


def _bind(known: Implementation, node: onnx.NodeProto, scope: Scope) -> Callable[..., Sequence[Any]]:
    mismatch = _mismatch(node, known, scope.version_of(known.schema.domain) or 0)
    if mismatch:
        raise Refused(mismatch)
    if known.body is not None:
        return _call_of(_schema_program(known.body, _with_defaults(node, known), scope), len(node.input))
    if known.body_needs_types:
        return _TypedBody(known, node, scope)
    assert known.run_class is not None
    completed = _with_defaults(node, known)
    parameters = {
        "log": _no_log,
        "opsets": dict(scope.opsets),
        "verbose": 0,
        "new_ops": None,
        "existing_functions": {},
        "evaluator_cls": functools.partial(_NestedGraph, scope),
    }
    try:
        operator = known.run_class(completed, parameters)
    except Refused:
        raise
    except Exception as error:
        raise_out_of_memory(error)
        raise Refused(f"onnx.reference does not support it: {type(error).__name__}: {error}") from error
    if known.accepted is not None:  # the newest schema may have attributes that this implementation does not support
        operator.attributes_names_ &= known.accepted
    return operator.run


def _with_defaults(node: onnx.NodeProto, known: Implementation) -> onnx.NodeProto:
    """A copy of ``node`` with the attribute defaults of its own opset, and without attributes that have no effect."""
    completed = onnx.NodeProto()
    completed.CopyFrom(node)
    effective = known.schema.attributes.keys() - IGNORED_ATTRIBUTES
    kept = [attribute for attribute in node.attribute if attribute.name in effective]
    del completed.attribute[:]
    completed.attribute.extend(kept)
    stated = {attribute.name for attribute in kept}
    for name, definition in known.schema.attributes.items():
        is_supported = known.accepted is None or name in known.accepted
        if is_supported and name not in stated and definition.default_value.type != onnx.AttributeProto.UNDEFINED:
            completed.attribute.add().CopyFrom(definition.default_value)
    return completed


def _schema_program(body: onnx.FunctionProto, node: onnx.NodeProto, scope: Scope) -> Program:
    return scope.library.function_program((body.domain, body.name, "schema"), body, node)


def _call_of(program: Program, num_inputs: int) -> Callable[..., Sequence[Any]]:
    """A call of a function body. Trailing inputs that the caller omits are None."""
    absent = (None,) * (len(program.input_names) - num_inputs)

    def call(*inputs: Any) -> Sequence[Any]:
        return program.run((*inputs, *absent))

    return call


class _TypedBody:
    """An operator whose function body depends on the types of its inputs. Compiled once per combination."""

    def __init__(self, known: Implementation, node: onnx.NodeProto, scope: Scope) -> None:
        self._schema = known.schema
        self._node = node
        self._scope = scope

    def __call__(self, *inputs: Any) -> Sequence[Any]:
        types = []
        for value in inputs:
            proto = onnx.TypeProto()
            if value is not None:
                proto.tensor_type.elem_type = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
                proto.tensor_type.shape.SetInParent()
                for size in value.shape:
                    proto.tensor_type.shape.dim.add().dim_value = size
            types.append(proto.SerializeToString())
        body = onnx.FunctionProto.FromString(
            self._schema.get_context_dependent_function(self._node.SerializeToString(), types)
        )
        identity = body.SerializeToString(deterministic=True).hex()
        program = self._scope.library.function_program((body.domain, body.name, identity), body, self._node)
        return program.run((*inputs, *(None,) * (len(program.input_names) - len(inputs))))


class _NestedGraph:
    """A graph attribute with the interface that classes of ``onnx.reference`` call."""

    has_linked_attribute = False

    def __init__(self, scope: Scope, graph: onnx.GraphProto, **_: Any) -> None:
        self._program = scope.graph_program(graph)
        if self._program.captures:
            raise Refused(f"its nested graph reads the outer value {self._program.captures[0]!r}")
        self.input_names = list(self._program.input_names)
        self.output_names = list(self._program.output_names)

    def run(self, _: None, feeds: dict[str, Any], attributes: Any = None) -> list[Any]:
        del attributes  # already filled in
        return self._program.run([feeds[name] for name in self.input_names])


def _no_log(pattern: str, *arguments: Any) -> None:
    del pattern, arguments
