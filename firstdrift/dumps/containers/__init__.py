"""How tensors lie in files: one module per container, all offering `headers` and `load`."""
