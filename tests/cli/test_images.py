"""Images as inputs of commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from onnx import TensorProto

from given_inputs import made, ports
from hetero.cli.group import Failure
from hetero.cli.inputs import InputChoice

Image = pytest.importorskip("PIL.Image")

F, U8, I8, I64, F16 = (getattr(TensorProto, name) for name in ("FLOAT", "UINT8", "INT8", "INT64", "FLOAT16"))


@pytest.fixture
def pixels(tmp_path: Path) -> np.ndarray:
    """4 rows of 6 pixels, as photo.png."""
    array = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
    Image.fromarray(array).save(tmp_path / "photo.png")
    return array


@pytest.mark.parametrize("dtype", [F, U8, I64, F16])
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((1, 3, 4, 6), (2, 0, 1)),
        ((1, 4, 6, 3), (0, 1, 2)),
        ((3, 4, 6), (2, 0, 1)),
        ((4, 6, 3), (0, 1, 2)),
        (("n", 3, "h", "w"), (2, 0, 1)),
        ((None, None, None, 3), (0, 1, 2)),
        ((2, 3, 4, 6), (2, 0, 1)),
    ],
)
def test_layouts(pixels: np.ndarray, tmp_path: Path, shape: tuple[Any, ...], axes: tuple[int, ...], dtype: int) -> None:
    found = made(f"x={tmp_path / 'photo.png'}", ports(*shape, dtype=dtype))
    expected = pixels.transpose(axes)
    if len(shape) == 4:
        expected = np.stack([expected] * (2 if shape[0] == 2 else 1))
    assert found.flags.c_contiguous
    np.testing.assert_array_equal(found, expected)


def test_mean_scale_and_order(pixels: np.ndarray, tmp_path: Path) -> None:
    path, of = f"x={tmp_path / 'photo.png'}", ports(1, 3, 4, 6)
    found = made(path, of, image_mean="10,20,30", image_scale="2,4,8")
    expected = (pixels.astype(np.float64) - [10, 20, 30]) / [2, 4, 8]
    np.testing.assert_allclose(found[0].transpose(1, 2, 0), expected, rtol=1e-6)
    found = made(path, of, image_scale="255", image_order="BGR")
    np.testing.assert_allclose(found[0].transpose(1, 2, 0), pixels[..., ::-1] / 255, rtol=1e-6)
    signed = made(path, ports(1, 3, 4, 6, dtype=I8), image_mean="128")
    np.testing.assert_array_equal(signed[0].transpose(1, 2, 0), pixels.astype(int) - 128)


def test_sizes(pixels: np.ndarray, tmp_path: Path) -> None:
    path = f"x={tmp_path / 'photo.png'}"
    resized = np.asarray(Image.fromarray(pixels).resize((12, 8), Image.Resampling.BILINEAR))
    fixed = made(path, ports(1, 3, 8, 12))
    np.testing.assert_array_equal(fixed[0].transpose(1, 2, 0), resized)
    free = ports(1, 3, "h", "w")
    np.testing.assert_array_equal(made(path, free, image_size="12x8"), fixed)
    np.testing.assert_array_equal(made(path, free, dims=["h=8", "w=12"]), fixed)
    np.testing.assert_array_equal(made(path, free, shapes=["1x3x8x12"]), fixed)
    assert made(path, free).shape == (1, 3, 4, 6)
    assert made(path, ports(1, 3, "h", 12)).shape == (1, 3, 4, 12)


def test_channels(pixels: np.ndarray, tmp_path: Path) -> None:
    path = f"x={tmp_path / 'photo.png'}"
    gray = np.asarray(Image.fromarray(pixels).convert("L"))
    np.testing.assert_array_equal(made(path, ports(1, 1, 4, 6))[0, 0], gray)
    np.testing.assert_array_equal(made(path, ports(4, 6)), gray)
    assert (made(path, ports(1, 4, 4, 6))[0, 3] == 255).all()
    alpha = np.dstack([pixels, np.full((4, 6), 7, np.uint8)])
    Image.fromarray(alpha).save(tmp_path / "alpha.png")
    found = made(f"x={tmp_path / 'alpha.png'}", ports(1, 4, 6, 4), image_order="BGR", image_layout="NHWC")
    np.testing.assert_array_equal(found[0], alpha[..., [2, 1, 0, 3]])


def test_a_photo_that_lies_on_its_side(tmp_path: Path) -> None:
    """A camera that was turned says so in EXIF."""
    image = Image.fromarray(np.zeros((4, 6, 3), np.uint8))
    exif = image.getexif()
    exif[0x0112] = 6  # rotate by 90 degrees
    image.save(tmp_path / "turned.jpg", exif=exif)
    assert made(f"x={tmp_path / 'turned.jpg'}", ports(1, 3, "h", "w")).shape == (1, 3, 6, 4)


@pytest.mark.parametrize(
    ("shape", "dtype", "options", "words"),
    [
        ((1, 5, 4, 6), F, {}, r"the layout of input 'x', of shape \[1, 5, 4, 6\], is not clear: give --image-layout"),
        ((None, None, None, None), F, {}, "is not clear"),
        ((1, 3, 4, 3), F, {}, "is not clear"),
        ((1, 1, 6, 4), F, {}, "is not clear"),
        ((6,), F, {}, "is not clear"),
        ((1, 5, 4, 6), F, {"image_layout": "NCHW"}, "has 5 channels, and an image 1, 3 or 4"),
        ((1, 3, 4, 6), F, {"image_layout": "HWC"}, "HWC: input 'x' has 4 dimensions"),
        ((1, 3, 8, 6), F, {"image_layout": "NHWC"}, r"\[1, 3, 8, 6\], has 6 channels in this layout; it fits NCHW"),
        ((8, 6, 3), F, {"image_layout": "chw"}, r"\[8, 6, 3\], has 8 channels in this layout; it fits HWC"),
        ((1, 3, 4, 6), F, {"image_size": "12x8"}, "the model takes a height of 4"),
        ((1, 3, "h", "w"), F, {"image_size": "12"}, "expected WIDTHxHEIGHT"),
        ((1, 3, "h", "w"), F, {"image_size": "0x8"}, "expected WIDTHxHEIGHT"),
        ((1, 3, 4, 6), F, {"image_mean": "1,2"}, "or 3, one for each channel"),
        ((1, 3, 4, 6), F, {"image_mean": "x"}, "expected a number"),
        ((1, 3, 4, 6), F, {"image_scale": "0"}, "must not be 0"),
        ((1, 3, 4, 6), F, {"image_scale": "nan"}, "expected a finite number"),
        ((1, 3, 4, 6), I8, {}, "takes int8; set --image-mean and --image-scale"),
        ((1, 3, 4, 6), TensorProto.STRING, {}, "holds no image"),
        ((1, 3, 4, 6), TensorProto.BOOL, {}, "holds no image"),
    ],
)
@pytest.mark.usefixtures("pixels")
def test_what_no_image_fits(
    tmp_path: Path, shape: tuple[Any, ...], dtype: int, options: dict[str, str], words: str
) -> None:
    with pytest.raises(click.UsageError, match=words):
        made(f"x={tmp_path / 'photo.png'}", ports(*shape, dtype=dtype), **options)


def test_options_without_an_image(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.txt"
    numbers.write_text("1 2 3")
    for inputs in ((), (f"x={numbers}",)):
        with pytest.raises(click.UsageError, match="--image-scale: no input is an image"):
            InputChoice(inputs, image_scale="255").make(ports(3))


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of, path = ports(1, 3, 4, 6), tmp_path / "x.jpg"
    with pytest.raises(Failure, match=r"cannot read .*x\.jpg: No such file"):
        made(f"x={path}", of)
    path.write_bytes(b"no image")
    with pytest.raises(Failure, match=r"cannot read .*x\.jpg"):
        made(f"x={path}", of)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(Failure, match=r"images require Pillow: pip install 'hetero\[images\]'"):
        made(f"x={path}", of)


@pytest.mark.usefixtures("pixels")
def test_an_image_in_a_run(hetero_json: Any, hetero: Any, tmp_path: Path) -> None:
    import onnx

    from hetero.demo import light_model_path

    onnx.save(onnx.load(light_model_path("light_squeezenet")), "net.onnx")
    found = hetero_json("run", "net.onnx", "-i", "photo.png", "--image-scale", "255", "--image-order", "bgr")
    assert found["inputs"][0]["source"] == "photo.png"
    assert found["inputs"][0]["shape"] == [1, 3, 224, 224]
    assert "has the shape [1, 3, 224, 224]" in hetero("run", "net.onnx", "-i", "[1,2]", code=2).stderr


@pytest.mark.parametrize(
    ("shape", "layout", "warning"),
    [
        ((1, 3, "h", "w"), "NHWC", "Warning: --image-layout NHWC: the shape of input 'x', [1, 3, h, w], fits NCHW"),
        (("n", "h", "w", 3), "NCHW", "Warning: --image-layout NCHW: the shape of input 'x', [n, h, w, 3], fits NHWC"),
        ((1, 3, "h", "w"), "NCHW", ""),
        ((1, 4, 6, 3), "NCHW", ""),  # either is possible
        ((1, "a", "b", "c"), "NHWC", ""),
    ],
)
@pytest.mark.usefixtures("pixels")
def test_a_layout_that_the_shape_contradicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], shape: tuple[Any, ...], layout: str, warning: str
) -> None:
    made(f"x={tmp_path / 'photo.png'}", ports(*shape), image_layout=layout)
    printed = capsys.readouterr().err
    assert printed.startswith(warning)
    assert bool(printed) == bool(warning)
