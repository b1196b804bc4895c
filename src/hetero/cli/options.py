"""Options that several commands share."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = [
    "HELP_OPTIONS",
    "FiniteRange",
    "WholeRange",
    "debug_option",
    "force_option",
    "input_options",
    "json_option",
    "model_argument",
    "new_command",
    "shape_options",
]


class WholeRange(click.IntRange):
    """An integer in a range."""

    name = "integer"  # in help and in errors, where click has "integer range"


class FiniteRange(click.FloatRange):
    """A number in a range, neither NaN nor infinite."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{number} is not a finite number.", param, ctx)
        return number


HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

_F = TypeVar("_F", bound=Callable[..., Any])
_Decorator = Callable[[_F], _F]


def _set_debug(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        ctx.meta["hetero.debug"] = True


debug_option = click.option(
    "--debug", is_flag=True, expose_value=False, callback=_set_debug, help="Show a traceback on errors."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print only JSON on stdout.")
force_option = click.option("--force", "-f", is_flag=True, help="Replace existing files.")


def new_command(example: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Decorates the function ``command`` of a command's module. ``example``: arguments of ``hetero``, for its help."""
    epilog = f"\b\nExample:\n  hetero {example}"  # \b keeps the lines

    def decorate(function: Callable[..., Any]) -> click.Command:
        return click.command(context_settings=HELP_OPTIONS, epilog=epilog)(debug_option(function))

    return decorate


def model_argument(what: str = "MODEL") -> _Decorator[Any]:
    """Adds ``model``, a path: an argument, or ``-m`` as in OpenVINO's benchmark_app."""

    def decorate(function: _F) -> _F:
        @functools.wraps(function)
        def chosen(*, model_path: str | None, model_option: str | None, **others: Any) -> Any:
            if (model_path is None) == (model_option is None):
                problem = "given twice" if model_path is not None else "missing: give it as the argument, or with -m"
                raise click.UsageError(f"the model is {problem}")
            model = model_path or model_option
            if model == "-":
                raise click.UsageError(
                    "a model is read from a file, not from standard input: save it, and give its path"
                )
            return function(model=model, **others)

        decorated = click.option(
            "-m", "--model", "model_option", metavar="PATH", type=click.Path(), help=f"Path of the {what.lower()}."
        )(chosen)
        return click.argument("model_path", metavar=f"[{what}]", required=False, type=click.Path())(decorated)  # type: ignore[return-value]

    return decorate


def _dim_option(otherwise: str) -> Callable[[_F], _F]:
    text = f"Size of a symbolic dimension [default: {otherwise}]."
    return click.option("--dim", "dims", metavar="SYMBOL=SIZE", multiple=True, help=text)


_shape_option = click.option(
    "-shape",
    "--shape",
    "shapes",
    metavar="[NAME=]1x3x224x224",
    multiple=True,
    help="Shape of an input, also as 1,3,224,224 or name[1,3,224,224]; ? leaves a size open.",
)


def shape_options(function: _F) -> _F:
    """Adds ``shapes`` and ``dims``, for `hetero.cli.session.Session.state_sizes`."""
    return _dim_option("unknown")(_shape_option(function))


_IMAGE_OPTIONS = (
    click.option(
        "--image-order",
        type=click.Choice(("RGB", "BGR"), case_sensitive=False),
        default="RGB",
        show_default=True,
        help="Order of the channels of image inputs.",
    ),
    click.option(
        "--image-scale", metavar="NUMBER[,…]", help="Divide pixels by this, after --image-mean; one for each channel."
    ),
    click.option("--image-mean", metavar="NUMBER[,…]", help="Subtract this from pixels (0 to 255); one per channel."),
    click.option(
        "--image-layout",
        type=click.Choice(("NCHW", "NHWC", "CHW", "HWC", "HW"), case_sensitive=False),
        help="Layout of image inputs [default: from the shape].",
    ),
    click.option("--image-size", metavar="WxH", help="Size of image inputs [default: the model's, or the image's]."),
)


def input_options(function: _F) -> _F:
    """Adds the options of `hetero.cli.inputs.InputChoice`, under the names of its fields."""
    for option in (
        *_IMAGE_OPTIONS,
        click.option("--seed", type=WholeRange(min=0), default=0, show_default=True, help="Seed of random inputs."),
        click.option(
            "--range",
            "ranges",
            metavar="[NAME=]LOW:HIGH",
            multiple=True,
            help="Range of random values, without HIGH [default: 0:1, integers 0:2, 8-bit integers their whole range].",
        ),
        _dim_option("1"),
        _shape_option,
        click.option(
            "-i",
            "--input",
            "inputs",
            metavar="[NAME=]VALUE",
            multiple=True,
            help="A number, a list such as 1,2,3, a .npy or .npz file, a text file of numbers, or an image. Inputs "
            "without a value are random.",
        ),
    ):
        function = option(function)
    return function
