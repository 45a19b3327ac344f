"""Readers of dump directories: one module per format, all giving the same `Dump`."""
