"""What people decided of matches."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the tables of match sets and of their versions."""
    op.create_table(
        "match_sets",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("comparison_id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["comparison_id"], ["comparisons.id"], name="fk_match_sets_comparison_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_match_sets"),
        sa.UniqueConstraint("comparison_id", "name", name="uq_match_sets_comparison_id_name"),
    )
    op.create_table(
        "match_set_versions",
        sa.Column("match_set_id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("parent", sa.Integer(), nullable=False),
        sa.Column("edits", sa.Text(), nullable=False),
        sa.Column("mappings", sa.Text(), nullable=False),
        sa.Column("results_id", sa.Integer(), nullable=True),
        sa.Column("made_at", sa.Double(), nullable=False),
        sa.ForeignKeyConstraint(
            ["match_set_id"], ["match_sets.id"], name="fk_match_set_versions_match_set_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["results_id"], ["comparisons.id"], name="fk_match_set_versions_results_id", ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("match_set_id", "version", name="pk_match_set_versions"),
    )
    op.create_index("ix_match_set_versions_results_id", "match_set_versions", ["results_id"])
