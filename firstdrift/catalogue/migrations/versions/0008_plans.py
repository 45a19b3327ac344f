"""Plans and trees as they were judged, so that other rules can be tried without matching anew."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Make their table; of what was compared before nothing is in it."""
    op.create_table(
        "plans",
        sa.Column("slice_pair_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["slice_pair_id"], ["slice_pairs.id"], name="fk_plans_slice_pair_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("slice_pair_id", name="pk_plans"),
    )
