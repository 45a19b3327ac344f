"""Models that are spread over several ranks."""
