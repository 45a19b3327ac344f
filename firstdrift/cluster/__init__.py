"""Comparisons whose slices are read, matched, measured and judged by a Dask cluster."""
