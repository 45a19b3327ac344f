"""What people write about nodes."""
