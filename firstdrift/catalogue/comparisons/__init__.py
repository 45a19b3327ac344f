"""Comparisons in the catalogue, and what came out."""
