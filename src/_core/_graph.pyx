"""Graph algorithms over CSR arrays."""
