"""Links to comparisons, and notes on them."""
