"""The queue of work."""
