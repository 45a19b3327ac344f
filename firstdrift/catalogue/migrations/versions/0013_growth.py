"""Dumps that are still being written: what tells slices from what they were, and which are not whole."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Know nothing of it yet: what was indexed before is indexed anew when its dump changes."""
    for name in ("files", "unfinished"):
        op.add_column("slices", sa.Column(name, sa.Text()))
    for name in ("golden_files", "target_files"):
        op.add_column("comparisons", sa.Column(name, sa.Text()))
    for table, name in (("comparisons", "follows"), ("slice_pairs", "settled")):
        op.add_column(table, sa.Column(name, sa.Boolean(), nullable=False, server_default=sa.false()))
