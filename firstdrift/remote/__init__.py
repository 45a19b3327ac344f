"""Dumps on another host: brought into a folder of this machine, where the readers of dumps find them."""
