"""The tree of a slice pair: which rows are seen, and how that is written into an address."""
