"""Which golden node corresponds to which target node, and how that was found."""
