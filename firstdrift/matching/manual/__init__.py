"""Matching by what people said: edits, mapping files, match sets."""
