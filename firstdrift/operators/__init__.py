"""What an operator is, whatever its framework calls it."""
