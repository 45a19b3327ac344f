"""/login: a token for a session; /logout: the end of it."""
