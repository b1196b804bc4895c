"""An ONNX model in a payload, for devices that compile from ONNX: its bytes, and its mapped weights."""

from __future__ import annotations

import msgspec

from ..errors import Corrupt, ModelError, raise_out_of_memory
from ..model.detached import attach, detach
from ..model.model import Model
from .payload import ArrayRef, PayloadReader, PayloadWriter

__all__ = ["read_payload_model", "write_payload_model"]


class _Weights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Constants that are not in ``model.onnx``, by name."""

    arrays: dict[str, ArrayRef]


def write_payload_model(writer: PayloadWriter, model: Model) -> None:
    """Add ``model.onnx``, ``weights.json`` and the weights."""
    data, arrays = detach(model.with_inferred_types())
    writer.add("model.onnx", data)
    writer.add_json("weights.json", _Weights({name: writer.add_array(array) for name, array in arrays.items()}))


def read_payload_model(reader: PayloadReader) -> Model:
    """The model, with mapped weights. Raises `Corrupt` if the payload does not contain a valid model."""
    weights = reader.read_json("weights.json", _Weights)
    arrays = {name: reader.array(ref) for name, ref in weights.arrays.items()}
    try:
        model = attach(reader.read("model.onnx"), arrays, f"{reader.label}: model.onnx")
    except ModelError as error:
        raise_out_of_memory(error)
        raise Corrupt(str(error)) from error
    return model
