"""CPU kernels: the menu, single calls, and compiled programs.

The functions here validate their arguments, then leave the GIL and run C. They know kernels by name and number,
never an ONNX operator.
"""
