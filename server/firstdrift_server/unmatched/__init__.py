"""/c/{id}/s/{slice}/unmatched: nodes and tensors without partner."""
