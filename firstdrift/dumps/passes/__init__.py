"""Dumps of forward passes: a file for each, by SGLang and vLLM."""
