"""How far apart two tensors are."""
