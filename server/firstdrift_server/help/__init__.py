"""Help: what verdicts, classes and terms mean."""
