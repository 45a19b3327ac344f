"""What everything speaks of: tensors, nodes, slices, messages."""
