"""Graphs that msprobe made for its viewer."""
