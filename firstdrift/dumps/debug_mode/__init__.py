"""Logs of PyTorch's DebugMode."""
