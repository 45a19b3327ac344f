"""/c/{id}/export: a comparison as a file."""
