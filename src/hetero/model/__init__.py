"""Reading: an ONNX file becomes a `Model`, an immutable index over its bytes.

`read` is the way in; `file` holds the bytes and the arrays that the compiled reader makes of them; `rows` selects of
these what makes a model or a part; `model` is what every later stage works on, with the `views` that users see.
`constants`, `external`, `nested` and `inference` give data and types of values on demand; `extract` cuts nodes out;
`functions` inlines calls; `write` makes bytes of a model, and `save` files, with a `data_file` for weights. Nothing
outside of this package knows protobuf.
"""
