"""Two tensors seen from near: where they differ, by how much, and what the difference looks like.

sample        which rows are looked at, so that a tensor of any size answers at once
worst         the elements that are farthest apart, also in units in the last place
histogram     how golden, target and their difference are spread
profiles      largest and L2 difference along each dimension, and by head
area          a map of |target - golden| over two dimensions, and the numbers around a place
hints         what may have happened: scaled, shifted, transposed, rounded, ...

Everything is a function of two arrays; none is changed, and of arrays mapped from files only what is
looked at is read.
"""
