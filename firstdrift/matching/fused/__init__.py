"""Matching several nodes with the one they were fused into."""
