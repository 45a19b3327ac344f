"""How Alembic reaches the database: through the transaction that `upgrade` has opened."""

from alembic import context

from firstdrift.catalogue.tables import Entry

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Entry.metadata,
    render_as_batch=True,  # SQLite changes a table by copying it
)
context.run_migrations()
