"""The pages that hold a rollout against a trainer."""
