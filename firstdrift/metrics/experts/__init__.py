"""Metrics of what several experts hold."""
