"""The background process: takes jobs, does the arithmetic."""
