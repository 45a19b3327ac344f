"""/c/{id}/s/{slice}/graph: the modules of a slice pair as boxes in boxes."""
