"""What is no page of its own: health, jobs, the language, files of the pages."""
