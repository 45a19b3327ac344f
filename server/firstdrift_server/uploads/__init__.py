"""Dumps that visitors upload: files in chunks, archives unpacked safely, everything below one folder."""
