"""Who may use a server, and who did what: `firstdrift member` and `firstdrift audit`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from firstdrift.cli.settings import NO_SERVER, database_options, prepare_data_dir

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from firstdrift.catalogue.people.audit import Act, Deed


@click.group()
def member() -> None:
    """Add, list and remove people who log in with a token of their own; the server may be running."""


@member.command()
@click.argument("name")
@click.option("--viewer", is_flag=True, help="They see everything, and change nothing.")
@database_options
def add(name: str, *, viewer: bool, **chosen: Any) -> None:  # noqa: ANN401
    """Let NAME in, and print their token, this once: only a digest of it is kept.

    They log in with it as the owner does, and may do what the owner may.
    """
    from firstdrift.catalogue.engine import writing
    from firstdrift.catalogue.people.audit import Act, enter
    from firstdrift.catalogue.people.members import add_member

    with _database(chosen, makes=True) as engine, writing(engine, durable=True) as session:
        _, token = add_member(session, name, may_write=not viewer)
        enter(session, _deed(Act.MEMBER_ADDED, name))
    click.echo(f"firstdrift: the token of {_plain(name)}, which is shown this once:", err=True)
    click.echo(token)


@member.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
@database_options
def list_all(*, as_json: bool, **chosen: Any) -> None:  # noqa: ANN401
    """List members: what they may do, when they were added and seen last; those removed come last."""
    from firstdrift.catalogue.engine import reading
    from firstdrift.catalogue.people.members import list_members
    from firstdrift.exports.audit import member_lines, member_object
    from firstdrift.strict_json import to_json

    with _database(chosen) as engine, reading(engine) as session:
        known = list_members(session)
    as_object = {"members": list(map(member_object, known))}
    click.echo(to_json(as_object, indent=2) if as_json else "\n".join(member_lines(known)))


@member.command()
@click.argument("name")
@database_options
def remove(name: str, **chosen: Any) -> None:  # noqa: ANN401
    """Let NAME in no more: their token and their sessions are worth nothing, at once."""
    from firstdrift.catalogue.engine import writing
    from firstdrift.catalogue.people.audit import Act, enter
    from firstdrift.catalogue.people.members import remove_member

    with _database(chosen) as engine, writing(engine, durable=True) as session:
        remove_member(session, name)
        enter(session, _deed(Act.MEMBER_REMOVED, name))
    click.echo(f"{_plain(name)} is let in no more")


@click.command()
@click.option(
    "--who",
    default="",
    metavar="WHO",
    help='Only of "owner", "open" (anybody), "stranger", "terminal", "member:NAME" or "link:NUMBER".',
)
@click.option("--act", default="", metavar="ACT", help='Only what was done, such as "deleted".')
@click.option("--comparison", type=click.IntRange(min=1), help="What was done to this comparison alone.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many entries."
)
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
@database_options
def audit(
    *,
    who: str,
    act: str,
    comparison: int | None,
    limit: int,
    as_json: bool,
    **chosen: Any,  # noqa: ANN401
) -> None:
    """Say who changed what, the newest first: when, who, from which address, what, and of what."""
    from firstdrift.catalogue.engine import reading
    from firstdrift.catalogue.people.audit import Sought, entries
    from firstdrift.exports.audit import entry_line, entry_object
    from firstdrift.strict_json import to_json

    with _database(chosen) as engine, reading(engine) as session:
        found = entries(session, Sought(who, act, comparison), limit)
    if as_json:
        click.echo(to_json({"entries": list(map(entry_object, found))}, indent=2))
        return
    for entry in found:
        click.echo(entry_line(entry))


@contextmanager
def _database(chosen: dict[str, Any], *, makes: bool = False) -> "Iterator[Engine]":
    """Open the database of a server; with `makes`, what is not there is made."""
    from firstdrift.catalogue.engine import open_engine
    from firstdrift.catalogue.integrity import file_of, require_database
    from firstdrift.catalogue.migrate import upgrade
    from firstdrift_server.settings import settings_from

    settings = settings_from(roots=(), **chosen, **NO_SERVER)
    file = file_of(settings.database)
    if makes:
        prepare_data_dir(settings)
    elif file is not None:
        require_database(file)
    engine = open_engine(settings.database)
    try:
        upgrade(engine)
        yield engine
    finally:
        engine.dispose()


def _deed(act: "Act", name: str) -> "Deed":
    from firstdrift.catalogue.people.audit import Deed, at_terminal

    return Deed(act, at_terminal(), kind="member", subject=name)


def _plain(name: str) -> str:
    from firstdrift.paths import printable

    return printable(name)
