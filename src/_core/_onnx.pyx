"""Wire-format index of an ONNX file."""
