"""Match sets that were deleted; indexes of rows that no query uses."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Say of a match set when it was deleted, and drop the indexes."""
    op.add_column("match_sets", sa.Column("deleted_at", sa.Double(), nullable=True))
    for name in ("bad", "origin", "unmatched", "slice_pair_id_parent_index"):
        op.drop_index(f"ix_rows_{name}", "rows")
