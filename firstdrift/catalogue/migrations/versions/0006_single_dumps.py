"""Jobs that work on one dump, and the statistics that they compute from its values."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Let a job be about a path instead of a comparison, and make the table of computed statistics."""
    with op.batch_alter_table("jobs") as jobs:
        jobs.add_column(sa.Column("path", sa.Text(), nullable=True))
        jobs.alter_column("comparison_id", existing_type=sa.Integer(), nullable=True)
    op.create_index("ix_jobs_path_id", "jobs", ["path", "id"])
    op.create_table(
        "computed",
        sa.Column("slice_id", sa.Integer(), nullable=False),
        sa.Column("node", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("summary", sa.Text(), nullable=True),
        sa.Column("problem", sa.Text(), nullable=True),
        sa.ForeignKeyConstraint(["slice_id"], ["slices.id"], name="fk_computed_slice_id", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("slice_id", "node", "position", name="pk_computed"),
        sqlite_with_rowid=False,
    )
