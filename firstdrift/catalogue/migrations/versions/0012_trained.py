"""What a step of training shows of parameters lies beside what is said of a slice: pages do without it."""

import sqlalchemy as sa
from alembic import op

from firstdrift.catalogue.columns import Record
from firstdrift.catalogue.comparisons.trained import without_trained
from firstdrift.verdict.judgement import SliceJudgement

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Take the parameters out of what is said, slice by slice."""
    op.add_column("slice_pairs", sa.Column("trained", sa.LargeBinary()))
    pairs = sa.table(
        "slice_pairs",
        sa.column("id", sa.Integer()),
        sa.column("judgement", Record(SliceJudgement)),
        sa.column("trained", sa.LargeBinary()),
    )
    connection = op.get_bind()
    for (number,) in connection.execute(sa.select(pairs.c.id)).all():
        here = pairs.c.id == number
        said, trained = without_trained(connection.scalars(sa.select(pairs.c.judgement).where(here)).one())
        if trained is not None:
            connection.execute(sa.update(pairs).where(here).values(judgement=said, trained=trained))
