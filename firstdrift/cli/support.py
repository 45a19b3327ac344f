"""`firstdrift support`: what helps others to find out what is wrong, in one file."""

from pathlib import Path
from typing import Any

import click

from firstdrift.cli.settings import NO_SERVER, database_options, settings_of


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.argument("roots", nargs=-1, type=click.Path(path_type=Path))
@database_options
@click.option("--with-names", is_flag=True, help="Also names of files, people and machines.")
@click.option(
    "--log", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Also the end of this log."
)
def support(
    file: Path,
    roots: tuple[Path, ...],
    with_names: bool,
    log: Path | None,
    **chosen: Any,  # noqa: ANN401
) -> None:
    """Write FILE, a zip for whoever is asked for help: versions, settings, findings, sizes, failed jobs.

    No secret is in it and no value of a dump, nor, unless they are asked for, names of files, people and
    machines. It says what is in it; look at it before you send it.
    """
    from firstdrift.paths import printable
    from firstdrift.support.bundle import gathered, write_bundle

    # What is not there is not made.
    settings = settings_of(roots, chosen | NO_SERVER)
    parts = gathered(settings, log, with_names=with_names)
    size = write_bundle(file, parts)
    click.echo(parts["ABOUT.txt"])
    click.echo(f"{printable(str(file))}: {size:,} bytes, readable for you alone")
