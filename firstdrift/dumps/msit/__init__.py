"""Torch dumps of msit."""
