"""/c/{id}/s/{slice}/tree: the tree of a slice pair: its rows, and which of them are seen."""
