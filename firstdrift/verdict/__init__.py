"""From numbers to an answer: rules, classes, the first bad token and node."""
