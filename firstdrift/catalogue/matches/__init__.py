"""Match sets in the catalogue."""
