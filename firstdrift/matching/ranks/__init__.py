"""Matching dumps of models that are spread over ranks."""
