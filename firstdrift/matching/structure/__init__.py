"""Matching by what lies where in the tree."""
