"""/c/{id}/s/{slice}/match: nodes matched by hand, and the match sets that keep such matches."""
