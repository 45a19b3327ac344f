"""People with tokens of their own, and who changed what."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Make both tables; of what was done before nothing is known."""
    op.create_table(
        "members",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("digest", sa.LargeBinary(), nullable=False),
        sa.Column("may_write", sa.Boolean(), nullable=False),
        sa.Column("added_at", sa.Double(), nullable=False),
        sa.Column("seen_at", sa.Double()),
        sa.Column("removed_at", sa.Double()),
        sa.PrimaryKeyConstraint("id", name="pk_members"),
        sa.UniqueConstraint("digest", name="uq_members_digest"),
    )
    active = sa.text("removed_at IS NULL")
    op.create_index(
        "ix_members_name", "members", ["name"], unique=True, sqlite_where=active, postgresql_where=active
    )
    op.create_table(
        "audit",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("at", sa.Double(), nullable=False),
        sa.Column("until", sa.Double(), nullable=False),
        sa.Column("times", sa.Integer(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("actor", "name")),
        sa.Column("number", sa.Integer()),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("address", "act")),
        sa.Column("comparison_id", sa.Integer()),
        *(sa.Column(name, sa.Text(), nullable=False) for name in ("kind", "subject")),
        sa.PrimaryKeyConstraint("id", name="pk_audit"),
    )
    for name in ("at", "until", "comparison_id"):
        op.create_index(f"ix_audit_{name}", "audit", [name])
