"""What is done to the database of a server: `firstdrift check`, `backup` and `restore`."""

from pathlib import Path
from typing import Any

import click

from firstdrift.cli.progress import pages_bar
from firstdrift.cli.settings import NO_SERVER, database_options, settings_of
from firstdrift.exits import FOUND


@click.command()
@click.argument("roots", nargs=-1, type=click.Path(path_type=Path))
@database_options
@click.option("--quick", is_flag=True, help="Do not read the whole database: for a check every few seconds.")
@click.option(
    "--seconds",
    type=click.FloatRange(min=0),
    default=60.0,
    show_default=True,
    help="Read the database for no longer; what was not read is said.",
)
@click.pass_context
def check(
    ctx: click.Context,
    /,
    roots: tuple[Path, ...],
    quick: bool,
    seconds: float,
    **chosen: Any,  # noqa: ANN401
) -> None:
    """Check versions, roots, disk, data directory, database and worker; exit with 1 if anything is wrong.

    Each table of the database is read from begin to end. Nothing is changed.
    """
    from firstdrift.checkup import examine
    from firstdrift.paths import printable

    # What is not there is not made.
    settings = settings_of(roots, chosen | NO_SERVER)
    good = True
    for finding in examine(settings, None if quick else seconds):
        click.echo(f"{finding.mark:<4}  {finding.subject:<10} {printable(finding.said)}")
        good = good and finding.good
    ctx.exit(0 if good else FOUND)


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@database_options
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def backup(file: Path, force: bool, **chosen: Any) -> None:  # noqa: ANN401
    """Copy the database to FILE, while server and workers go on.

    FILE is the database as it was at one moment, found to be whole, and readable for you alone. Dumps that
    were uploaded are not in it: they lie in the directory uploads beside the database; copy that too.
    """
    from sqlalchemy.engine import make_url

    from firstdrift.catalogue.backup import back_up
    from firstdrift.serving import leave_on_sigterm

    leave_on_sigterm()
    with pages_bar("copying") as shown:
        size = back_up(_database(chosen), file, force=force, shown=shown)
    source = make_url(_database(chosen)).database
    click.echo(f"{_plain(file)}: {size:,} bytes, a copy of {source}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@database_options
def restore(file: Path, **chosen: Any) -> None:  # noqa: ANN401
    """Make FILE, a backup, the database again, once server and workers are stopped.

    The database that was there is kept beside it under another name. Uploaded dumps are not touched.
    """
    from firstdrift.catalogue.backup import restore as put_back
    from firstdrift.serving import leave_on_sigterm

    leave_on_sigterm()
    with pages_bar("restoring") as shown:
        kept = put_back(file, _database(chosen), shown=shown)
    click.echo("restored" + (f"; what was there before is {_plain(kept)}" if kept else ""))


def _plain(path: Path) -> str:
    from firstdrift.paths import printable

    return printable(str(path))


def _database(chosen: dict[str, Any]) -> str:
    from firstdrift_server.settings import settings_from

    return settings_from(roots=(), **chosen, **NO_SERVER).database
