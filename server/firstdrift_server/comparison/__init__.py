"""/c/{id}: a comparison: its finding, its slices, and where errors begin."""
