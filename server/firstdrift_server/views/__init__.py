"""What pages show, as plain data: made from the catalogue, laid out by a template, or sent as JSON."""
