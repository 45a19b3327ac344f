"""Per-token log-probabilities of a rollout engine and of a trainer: read, paired, measured, judged."""
