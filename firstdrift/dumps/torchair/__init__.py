"""TorchAir dumps."""
