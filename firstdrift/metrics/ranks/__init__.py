"""Metrics of what several ranks hold."""
