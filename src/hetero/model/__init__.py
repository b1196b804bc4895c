"""Reading: an ONNX file becomes a `Model`, an immutable index over its bytes.

`read` is the way in; `file` holds the bytes and the arrays that the compiled reader makes of them; `model` is what
every later stage works on; `constants`, `external` and `inference` give data and types of values on demand; `extract`
cuts nodes out, and `write` makes bytes of a model. Nothing outside of this package knows protobuf.
"""
