"""/c/{id}/s/{slice}/likely: the few matches that would resolve most of what has no partner."""
