"""/new: choose two dumps, and how to compare them."""
