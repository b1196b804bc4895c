"""Errors for the names that OpenVINO and onnxruntime give to what hetero calls otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

__all__ = ["OtherNames"]


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
