"""/c/{id}/s/{slice}/n/{row}: a node of a tree, and a pair of its tensors."""
