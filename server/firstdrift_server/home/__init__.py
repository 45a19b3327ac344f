"""/: the comparisons, the dumps that are known, and the bin."""
