"""What pages ask of the files of dumps, answered in child processes: the web process reads none itself."""
