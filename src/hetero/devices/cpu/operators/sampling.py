"""Operators that sample images: GridSample, AffineGrid, RoiAlign; also NonMaxSuppression and Det."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from .... import _kernels
from ...._sizes import whole
from ....errors import InferenceError
from ..registry import F32, FLOATS, Node, operator
from ..values import Context, Value
from .elementwise import _optional, _required, binary
from .movement import expanded, strided

if TYPE_CHECKING:
    from ....model.model import Model, NodeView

_INT64 = np.dtype(np.int64)
_NEAREST, _LINEAR, _CUBIC = (_kernels.constant(f"SAMPLE_{name}") for name in ("NEAREST", "LINEAR", "CUBIC"))
_MODES = {b"nearest": _NEAREST, b"linear": _LINEAR, b"cubic": _CUBIC, b"bilinear": _LINEAR, b"bicubic": _CUBIC}
_PADDINGS = {
    name: _kernels.constant(f"OUTSIDE_{name.decode().upper()}") for name in (b"zeros", b"border", b"reflection")
}


@operator("GridSample", dtypes=FLOATS, attributes={
    "mode": tuple(_MODES), "padding_mode": tuple(_PADDINGS), "align_corners": (0, 1),
})  # fmt: skip
def _grid_sample(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, grid = _required(inputs[0]), _required(inputs[1])
    rank = x.rank - 2
    if not 2 <= rank <= 3 or grid.rank != x.rank or grid.shape[-1] != rank or grid.shape[0] != x.shape[0]:
        raise InferenceError(f"a grid of shape {list(grid.shape)} does not fit an input of shape {list(x.shape)}")
    if grid.dtype != x.dtype:
        raise InferenceError(f"expected a grid of the input's type {x.dtype}, found {grid.dtype}")
    shape = (*x.shape[:2], *grid.shape[1 : x.rank - 1])
    if (0 in x.shape[2:] and 0 not in shape) or math.prod(x.shape[2:]) >= 1 << 31:
        raise InferenceError(f"cannot sample an empty or huge input of shape {list(x.shape)}")
    mode, padding = node.get("mode", b"linear"), node.get("padding_mode", b"zeros")
    ints = [_MODES[mode], _PADDINGS[padding], node.get("align_corners", 0)]
    return [context.call("grid_sample", [x, grid], shape, x.dtype, ints)]


@operator("AffineGrid", dtypes=(FLOATS, ("int64",)), attributes={"align_corners": (0, 1)})
def _affine_grid(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    theta = _required(inputs[0])
    size = [int(entry) for entry in context.known(_required(inputs[1])).reshape(-1)]
    rank = len(size) - 2
    if not 2 <= rank <= 3 or theta.shape != (size[0], rank, rank + 1) or min(size) < 0:
        raise InferenceError(f"theta {list(theta.shape)} does not fit size {size}")
    spatial = size[2:]
    if math.prod(spatial) > 1 << 32:
        raise InferenceError(f"a grid of {spatial} is too large")
    lines = []
    for count in spatial:
        places = np.arange(count, dtype=np.float64)
        if node.get("align_corners", 0):
            # ONNX does not define the corner of a single element; this is onnxruntime's.
            lines.append(2 * places / (count - 1) - 1 if count != 1 else places + 1)
        else:
            lines.append((2 * places + 1) / count - 1 if count else places)
    # A point is the sum of the columns of theta times its coordinates, x first, and of the last column. All but x, the
    # innermost axis, are added first: few numbers.
    batch = size[0]
    columns = [
        strided(context, theta, k, (batch, *[1] * rank, rank), (rank * (rank + 1), *[0] * rank, rank + 1))
        for k in range(rank + 1)
    ]
    total = columns.pop()
    for axis, line in enumerate(lines):
        shape = [count if i == axis else 1 for i, count in enumerate(spatial)]
        coordinates = context.constant(line.astype(theta.dtype).reshape(1, *shape, 1))
        term = binary(context, "mul", columns[rank - 1 - axis], coordinates)
        if axis == rank - 1:
            total = expanded(context, total, (batch, *spatial, rank))
        total = binary(context, "add", total, term)
    return [total]


def _roi_mode(node: Node) -> bytes:
    mode = node.get("coordinate_transformation_mode", b"half_pixel" if node.opset >= 16 else b"output_half_pixel")
    assert isinstance(mode, bytes)
    return mode


@operator("RoiAlign", dtypes=(FLOATS, FLOATS, ("int64",)), attributes={
    "coordinate_transformation_mode": (b"half_pixel", b"output_half_pixel"), "mode": (b"avg", b"max"),
    "output_height": None, "output_width": None, "sampling_ratio": None, "spatial_scale": None,
})  # fmt: skip
def _roi_align(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x, rois, images = (_required(value) for value in inputs)
    bins = (node.get("output_height", 1), node.get("output_width", 1))
    count = rois.shape[0] if rois.rank else 0
    if x.rank != 4 or rois.shape != (count, 4) or images.shape != (count,) or rois.dtype != x.dtype:
        raise InferenceError(f"rois {list(rois.shape)}, images {list(images.shape)} do not fit {list(x.shape)}")
    ratio, scale = node.get("sampling_ratio", 0), node.get("spatial_scale", 1.0)
    if min(bins) < 1 or max(bins) > 1 << 20 or not 0 <= ratio <= 4096 or not math.isfinite(scale):
        raise InferenceError(f"bins {bins}, sampling_ratio {ratio} or spatial_scale {scale} is out of range")
    if count and 0 in x.shape[2:]:
        raise InferenceError(f"cannot sample an empty input of shape {list(x.shape)}")
    ints = [ratio, int(node.get("mode", b"avg") == b"max"), int(_roi_mode(node) == b"half_pixel")]
    shape = (count, x.shape[1], *bins)
    return [context.call("roi_align", [x, rois, images], shape, x.dtype, ints, [scale])]


@operator("NonMaxSuppression", dtypes=(F32, F32, ("int64",), F32, F32), attributes={"center_point_box": (0, 1)},
          result="int64")  # fmt: skip
def _non_max_suppression(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    boxes, scores, max_boxes = _required(inputs[0]), _required(inputs[1]), _optional(inputs, 2)
    fits = boxes.rank == scores.rank == 3 and boxes.shape[::2] == (scores.shape[0], 4)
    if not fits or boxes.shape[1] != scores.shape[2] or boxes.shape[1] > 1 << 30:
        raise InferenceError(f"boxes {list(boxes.shape)} and scores {list(scores.shape)} do not fit")
    thresholds = [_optional(inputs, position) for position in (3, 4)]
    if any(value is not None and value.size != 1 for value in (max_boxes, *thresholds)):
        raise InferenceError("max_output_boxes_per_class and the thresholds are scalars")
    batches, classes, count = scores.shape
    # If the maximum is not known yet, the buffer has room for all boxes.
    bound = 0 if max_boxes is None else count if max_boxes.data is None else int(max_boxes.data.reshape(()))
    room = batches * classes * max(0, min(bound, count))
    specs = [((room, 3), _INT64), ((1,), _INT64)]
    operands = [boxes, scores, max_boxes, *thresholds]
    ints = [int(node.get("center_point_box", 0))]
    made = context.staged(lambda: context.call_many("nms", operands, specs, ints))
    chosen, count_found = made
    return [strided(context, chosen, 0, (whole(context.known(count_found)[0]), 3), (3, 1))]


def _det_refusal(model: Model, view: NodeView) -> str | None:
    shape = model.type_of(int(model.node_inputs[view.index][0])).shape
    return "Det of fewer than two dimensions" if shape is not None and len(shape) < 2 else None


@operator("Det", dtypes=FLOATS, check=_det_refusal)
def _det(context: Context, node: Node, inputs: Sequence[Value | None]) -> list[Value]:
    x = _required(inputs[0])
    if x.rank < 2 or x.shape[-1] != x.shape[-2]:
        raise InferenceError(f"expected square matrices, found shape {list(x.shape)}")
    size = x.shape[-1]
    return [context.call("det", [x], x.shape[:-2], x.dtype, [size])]
