"""/board: many comparisons side by side."""
