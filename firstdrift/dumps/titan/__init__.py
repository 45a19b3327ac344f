"""Logs of activations that torchtitan writes."""
