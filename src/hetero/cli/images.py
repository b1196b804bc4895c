"""Images as inputs, read with Pillow."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from ..base.formatting import shape_text
from ..model.types import Port
from .group import Failure

__all__ = ["ImageOptions", "is_image", "load_image"]

_ENDS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}
_LAYOUTS = ("NCHW", "NHWC", "CHW", "HWC", "HW")


@dataclasses.dataclass(frozen=True, slots=True)
class ImageOptions:
    """The options ``--image-…``, as text."""

    size: str | None = None
    layout: str | None = None
    mean: str | None = None
    scale: str | None = None
    order: str = "RGB"

    def given(self) -> list[str]:
        """The options that differ from their defaults."""
        fields = dataclasses.fields(self)
        return [f"--image-{field.name}" for field in fields if getattr(self, field.name) != field.default]


def is_image(path: str) -> bool:
    """Whether the file's extension is that of an image."""
    return path.lower().endswith(_ENDS)


def load_image(
    path: str, port: Port, shape: Sequence[int | None] | None, options: ImageOptions, where: str
) -> NDArray[Any]:
    """The pixels, 0 to 255, minus the mean and divided by the scale, in the layout, size and element type of an input.

    Without options, layout and size are those of ``shape``, as far as they are known; otherwise the image keeps its
    size. The image is repeated for each element of a batch. Raises `click.UsageError` if the input is not one of an
    image, and `Failure` if the file or Pillow cannot be read.
    """
    dtype = port.dtype
    if dtype is None or dtype.hasobject or (dtype.kind not in "iuf" and dtype.kind != "V"):
        raise click.UsageError(f"{where}: input {port.name!r} takes {dtype or 'an unknown type'}, which holds no image")
    layout = _layout(port, shape, options, where)
    sizes = dict(zip(layout, shape or (None,) * len(layout), strict=True))
    channels = sizes.get("C") or (3 if "C" in layout else 1)
    if channels not in _MODES:
        raise click.UsageError(f"{where}: input {port.name!r} has {channels} channels, and an image 1, 3 or 4")
    height, width = _size(options, sizes)
    pixels = _pixels(path, _MODES[channels], width, height).astype(np.float64)
    if options.order == "BGR" and channels >= 3:
        pixels[..., :3] = pixels[..., 2::-1]
    mean, scale = (
        _per_channel(text, channels, name) for text, name in ((options.mean, "mean"), (options.scale, "scale"))
    )
    if scale is not None and not np.all(scale):
        raise click.UsageError("--image-scale: the pixels are divided by it, so it must not be 0")
    values = pixels - (0 if mean is None else mean)
    values = values if scale is None else values / scale
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        values = np.rint(values)
        if values.min() < info.min or values.max() > info.max:
            raise click.UsageError(
                f"{where}: the pixels are {values.min():g} to {values.max():g}, and input {port.name!r} takes {dtype}; "
                "set --image-mean and --image-scale"
            )
    values = values.astype(dtype)
    if "C" not in layout:
        values = values[..., 0]
    elif layout.endswith("CHW"):
        values = np.moveaxis(values, -1, -3)
    if layout.startswith("N"):
        values = np.repeat(values[np.newaxis], sizes["N"] or 1, axis=0)
    return np.ascontiguousarray(values)


def _layout(port: Port, shape: Sequence[int | None] | None, options: ImageOptions, where: str) -> str:
    """The layout from the options, or the only one in which the input has 1, 3 or 4 channels. Warns if the shape of the
    input contradicts the options."""
    likely = None if shape is None else _likely_layout(shape)
    if options.layout is not None:
        layout = options.layout.upper()
        if shape is None:
            return layout
        if len(shape) != len(layout):
            raise click.UsageError(f"--image-layout {layout}: input {port.name!r} has {len(shape)} dimensions")
        channels = shape[layout.index("C")] if "C" in layout else None
        if likely not in (None, layout) and channels not in _MODES:
            trouble = f"--image-layout {layout}: the shape of input {port.name!r}, {shape_text(port.shape)}"
            if channels is not None:
                raise click.UsageError(f"{trouble}, has {channels} channels in this layout; it fits {likely}")
            click.echo(f"Warning: {trouble}, fits {likely} rather than {layout}", err=True)
        return layout
    if likely is not None:
        return likely
    known = "of unknown rank" if shape is None else f"of shape {shape_text(port.shape)}"
    raise click.UsageError(
        f"{where}: the layout of input {port.name!r}, {known}, is not clear: give --image-layout {'|'.join(_LAYOUTS)}"
    )


def _likely_layout(shape: Sequence[int | None]) -> str | None:
    """The only layout in which an input of this shape has 1, 3 or 4 channels."""
    channels = {name: shape[name.index("C")] for name in _LAYOUTS if len(name) == len(shape) and "C" in name}
    fits = [name for name, count in channels.items() if count in _MODES]
    if len(fits) > 1:  # an image is rather of 3 channels than 4 pixels high
        fits = [name for name in fits if channels[name] == 3]
    if len(fits) == 1:
        return fits[0]
    return "HW" if len(shape) == 2 else None


def _size(options: ImageOptions, sizes: dict[str, int | None]) -> tuple[int | None, int | None]:
    """Height and width. None keeps the image's own."""
    height, width = sizes.get("H"), sizes.get("W")
    if options.size is None:
        return height, width
    wide, _, high = options.size.lower().partition("x")
    if not wide.isdecimal() or not high.isdecimal() or not int(wide) or not int(high):
        raise click.UsageError(f"--image-size {options.size}: expected WIDTHxHEIGHT, such as 224x224")
    for given, known, what in ((int(high), height, "height"), (int(wide), width, "width")):
        if known is not None and given != known:
            raise click.UsageError(f"--image-size {options.size}: the model takes a {what} of {known}")
    return int(high), int(wide)


def _pixels(path: str, mode: str, width: int | None, height: int | None) -> NDArray[Any]:
    """An image as uint8 [height, width, channels], upright, resized with bilinear interpolation."""
    try:
        from PIL import Image, ImageOps
    except ImportError as error:
        raise Failure(f"cannot read {path}: images require Pillow: pip install 'hetero[images]'") from error
    try:
        with Image.open(path) as image:
            upright = ImageOps.exif_transpose(image).convert(mode)
    except OSError as error:
        raise Failure(f"cannot read {path}: {error.strerror or error}") from error
    except (ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise Failure(f"cannot read {path} as an image: {error}") from error
    size = (width or upright.width, height or upright.height)
    if size != upright.size:
        upright = upright.resize(size, Image.Resampling.BILINEAR)
    pixels = np.asarray(upright)
    return pixels if pixels.ndim == 3 else pixels[..., np.newaxis]


def _per_channel(text: str | None, channels: int, name: str) -> NDArray[Any] | None:
    """One number for all channels, or one for each."""
    if text is None:
        return None
    try:
        values = np.array([float(word) for word in text.split(",")])
    except ValueError as error:
        raise click.UsageError(f"--image-{name} {text}: expected a number, or one for each channel") from error
    if len(values) not in (1, channels) or not np.isfinite(values).all():
        raise click.UsageError(f"--image-{name} {text}: expected a finite number, or {channels}, one for each channel")
    return values
