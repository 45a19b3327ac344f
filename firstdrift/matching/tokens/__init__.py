"""Which row is which token of which sequence, and which rows of two runs are of one token."""
