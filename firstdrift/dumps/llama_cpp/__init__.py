"""Logs of llama.cpp's evaluation callback."""
