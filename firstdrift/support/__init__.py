"""What `firstdrift support` gathers for whoever is asked for help: a zip of a few files, without secrets."""
