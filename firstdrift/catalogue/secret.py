"""Secrets that are made up and given away, of which the database keeps only a digest."""

import hashlib
import secrets

_BYTES = 32


def new_secret() -> str:
    """Make up a secret of 256 bits, of 43 characters that an address may hold."""
    return secrets.token_urlsafe(_BYTES)


def digest_of(secret: str) -> bytes:
    """Return what is kept of a secret: with 256 random bits, nobody finds it by trying, however fast."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
