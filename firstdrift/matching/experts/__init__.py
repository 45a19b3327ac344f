"""Experts of a mixture that lie in another order."""
