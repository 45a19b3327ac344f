"""`firstdrift serve`, and its two parts apart: `firstdrift server` and `firstdrift worker`."""

import os
from pathlib import Path
from typing import Any, Final

import click

from firstdrift.cli.places import Place, all_at_hand
from firstdrift.cli.settings import (
    NO_SERVER,
    database_options,
    log_option,
    prepare_data_dir,
    server_options,
    server_settings,
)

_ROOT = Place(path_type=Path, exists=True, file_okay=False)
_WORKERS = click.option(
    "--workers", type=click.IntRange(min=0), help="Processes that measure; 0: one per core."
)


@click.command()
@click.argument("roots", nargs=-1, type=_ROOT)
@server_options
@_WORKERS
@click.option(
    "--compare",
    "wanted",
    nargs=2,
    multiple=True,
    type=click.Path(path_type=Path, exists=True),
    metavar="GOLDEN TARGET",
    help="Compare these two dumps at once, unless they already were; may be repeated.",
)
@click.pass_context
def serve(
    ctx: click.Context,
    /,
    roots: tuple[Path | str, ...],
    wanted: tuple[tuple[Path, Path], ...],
    **chosen: Any,  # noqa: ANN401
) -> None:
    """Serve the pages, and compare in the background, on this machine.

    ROOTS are the directories that may be browsed; the current one if none is given. What lies at an address,
    such as s3://bucket/dumps, is fetched first (docs/remote.md).
    """
    import gc

    # What is imported stays, in this process and in the copy of it that becomes the web process.
    gc.disable()
    from firstdrift.serving import describe_address
    from firstdrift.serving import serve as run

    settings = server_settings(all_at_hand(roots), chosen)
    ctx.exit(run(settings, wanted, lambda url, made: click.echo(describe_address(url, settings, made))))


@click.command()
@click.argument("roots", nargs=-1, type=_ROOT)
@server_options
def server(roots: tuple[Path | str, ...], **chosen: Any) -> None:  # noqa: ANN401
    """Run the web process alone; a worker on the same database does the comparing.

    ROOTS are as `serve` has them.
    """
    from firstdrift.serving import describe_address
    from firstdrift_server import run

    settings = server_settings(all_at_hand(roots), chosen)
    run(settings, lambda url: click.echo(describe_address(url, settings)))


_NICENESS: Final = 5
"""Of 0 to 19: how far workers stand back behind the server that they were started with: pages come first."""


@click.command()
@click.argument("roots", nargs=-1, type=Place(path_type=Path))
@database_options
@log_option
@_WORKERS
@click.option(
    "--end-with-parent",
    type=int,
    hidden=True,
    help="Stop when the process that started this, so numbered, ends.",
)
def worker(roots: tuple[Path | str, ...], end_with_parent: int | None, **chosen: Any) -> None:  # noqa: ANN401
    """Run the background process alone: take comparisons from the database and do them.

    ROOTS are the directories outside of which it reads nothing, as the server was given them, addresses too;
    without any, it reads every dump that it is asked to.
    """
    from firstdrift.logs import set_up
    from firstdrift.processes.limits import Limits
    from firstdrift_server.settings import settings_from
    from firstdrift_worker.main import work_until_signal

    settings = settings_from(roots=all_at_hand(roots) or None, **chosen, **NO_SERVER)
    set_up(settings.log_format)
    prepare_data_dir(settings)
    if end_with_parent is not None:
        from firstdrift.serving import stop_without_parent

        stop_without_parent(end_with_parent)
        os.nice(_NICENESS)
    bounds = (*settings.roots, settings.uploads) if settings.roots else None
    limits = Limits(settings.job_memory, settings.reading_seconds)
    work_until_signal(
        settings.database,
        processes=settings.workers,
        roots=bounds,
        limits=limits,
        cluster=settings.cluster,
    )
