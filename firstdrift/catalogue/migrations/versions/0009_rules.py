"""The rule that decided what a node is called, or what excuses its error."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Keep it with each row; of what was judged before it is not known."""
    op.add_column("rows", sa.Column("rule", sa.Text(), nullable=True))
