"""Dumps of the debug hook of TensorRT-LLM."""
