"""Who is let in by a token of their own, and who changed what."""
