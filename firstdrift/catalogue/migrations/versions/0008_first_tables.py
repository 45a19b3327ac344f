"""The tables as the first release has them; what came before is not kept, for nobody was given it."""

revision = "0008"
down_revision = None


def upgrade() -> None:
    """Make nothing: a new database is made in the newest form at once."""
