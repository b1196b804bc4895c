# Makes this folder the package ``hetero`` for Cython: what its compiled modules share among themselves.
