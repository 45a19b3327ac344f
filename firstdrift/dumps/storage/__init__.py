"""Files, folders and the values of tensors, whichever tool wrote them."""
