"""Links that show a comparison to others, and what people write about nodes."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Make the tables of links and of notes."""
    op.create_table(
        "share_links",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("comparison_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("may_write", sa.Boolean(), nullable=False),
        sa.Column("created_at", sa.Double(), nullable=False),
        sa.Column("expires_at", sa.Double(), nullable=True),
        sa.Column("revoked_at", sa.Double(), nullable=True),
        sa.Column("seen_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["comparison_id"], ["comparisons.id"], name="fk_share_links_comparison_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_share_links"),
        sa.UniqueConstraint("digest", name="uq_share_links_digest"),
    )
    op.create_index("ix_share_links_comparison_id", "share_links", ["comparison_id"])
    op.create_table(
        "node_notes",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("comparison_id", sa.Integer(), nullable=False),
        sa.Column("coordinates", sa.Text(), nullable=False),
        sa.Column("side", sa.Text(), nullable=False),
        sa.Column("node", sa.Text(), nullable=False),
        sa.Column("author", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.Column("link_id", sa.Integer(), nullable=True),
        sa.Column("written_at", sa.Double(), nullable=False),
        sa.Column("deleted_at", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(
            ["comparison_id"], ["comparisons.id"], name="fk_node_notes_comparison_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["link_id"], ["share_links.id"], name="fk_node_notes_link_id", ondelete="SET NULL"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_node_notes"),
    )
    op.create_index("ix_node_notes_comparison_id", "node_notes", ["comparison_id"])
    op.create_index("ix_node_notes_link_id", "node_notes", ["link_id"])
