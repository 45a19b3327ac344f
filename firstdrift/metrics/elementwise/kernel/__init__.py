"""The compiled pass over the elements of a pair; imported to compile it, and never else."""
