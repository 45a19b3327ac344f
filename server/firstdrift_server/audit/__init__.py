"""/audit: who changed what."""
