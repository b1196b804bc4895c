"""Stage 1: reads an ONNX file into a `Model`, an immutable index over its bytes.

`read` is the entry point. `file` holds the bytes and the arrays of the C reader; `rows` selects the rows of a model or
of a part of it; `model` is the class for all later stages, and `views` its views of nodes and initializers.
`constants`, `external`, `nested` and `inference` return data and types of values on demand. `extract` extracts
submodels, `functions` inlines calls, `write` encodes a model, and `save` writes it to files, with weights in a
`data_file`.
"""
