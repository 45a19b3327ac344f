"""Matching two implementations of one model, whose modules are cut, called and laid out otherwise."""
