"""/c/{id}/rules: the rule set, thresholds and baseline of a comparison."""
