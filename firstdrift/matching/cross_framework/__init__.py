"""Matching two frameworks that name nothing alike."""
