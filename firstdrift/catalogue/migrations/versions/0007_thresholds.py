"""Thresholds that were moved, and the healthy run whose errors are no faults."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Say of a comparison by what it is judged."""
    op.add_column("comparisons", sa.Column("thresholds", sa.Text(), nullable=False, server_default="{}"))
    op.add_column("comparisons", sa.Column("baseline", sa.Integer(), nullable=True))
