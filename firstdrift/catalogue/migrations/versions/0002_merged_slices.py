"""Slices that were merged from those of several ranks."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Say of a slice how it was merged."""
    op.add_column("slices", sa.Column("merged", sa.Text(), nullable=True))
