"""ATB dumps, of msit and of msprobe."""
