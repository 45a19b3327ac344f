"""How the execution order of a slice is known, as data: until now it was a sentence."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_FROM_NAMES = "names, numbers in ascending order"


def upgrade() -> None:
    """Keep the sentences as they are, and say beside them what they told."""
    slices = sa.table("slices", sa.column("order_origin", sa.Text()))
    connection = op.get_bind()
    said = slices.c.order_origin
    for (text,) in connection.execute(sa.select(said).where(said.is_not(None)).distinct()).all():
        updated = sa.update(slices).where(said == text).values(order_origin=json.dumps(_origin(text)))
        connection.execute(updated)


def _origin(text: str) -> dict[str, object]:
    if text.startswith("recorded"):
        source = "recorded"
    else:
        source = "names" if text.endswith(_FROM_NAMES) else "derived"
    return {"source": source, "message": {"id": "verbatim", "arguments": {"text": text}}}
