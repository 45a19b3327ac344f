"""Dumps in the catalogue."""
