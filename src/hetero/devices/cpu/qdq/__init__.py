"""QDQ models in integers: DequantizeLinear, operator, QuantizeLinear becomes one node that computes on integers.

Quantization tools write a quantized model as float32 operators between pairs of QuantizeLinear and DequantizeLinear.
`rewrite` changes the nodes of a model before any node is lowered, so that float32 copies of the weights never exist:

- `tables`: elementwise functions of one 8-bit tensor become a table of 256 numbers;
- `moves`: operators that only move or select elements (and max pools) run on the integers themselves;
- `products`: Conv, MatMul and Gemm become integer products.

The other operators stay float32; sums and products of two quantized tensors become one call with the conversions
(`fusion/chains.py`). Each file states its exact conditions. Those that depend on shapes and types are checked when the
node is lowered; a node that does not meet them is lowered as the float32 nodes that it replaces.

Contract: tables and moves give the bits of the float32 nodes. Products have exact sums, which are scaled and rounded in
float32. So near the midpoint of two integers, a result can differ by one quantum from what the float32 nodes give.
"""

from .rewriting import rewrite

__all__ = ["rewrite"]
