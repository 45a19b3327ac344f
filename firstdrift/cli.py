"""The command `firstdrift`: the one place that knows server, worker and library.

Everything but click is imported by the command that needs it: `firstdrift compare` on a small dump
must not wait for torch, pandas or a web framework.
"""

import os
import sys
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from firstdrift.errors import FirstdriftError
from firstdrift.processes.apart import UNUSABLE, run_apart, status_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firstdrift.comparison.compare import Progress
    from firstdrift.comparison.report import Report
    from firstdrift.matching.manual.edits import MatchSetFile
    from firstdrift_server.settings import Settings

EXIT_FOUND = 1
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

_READ_DUMPS = ("compare", "inspect")
"""Commands that read dumps, and so run in a process that may die of them."""


class _Commands(click.Group):
    """Shows every error of ours as one message, with exit status 2."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except FirstdriftError as error:
            from firstdrift.exports.text import printable

            click.secho(printable(f"firstdrift: {error}"), fg="red", err=True)
            ctx.exit(UNUSABLE)
        except EOFError as error:  # click would take it for the end of what somebody types, with status 1
            raise RuntimeError("a file ended where more was expected") from error
        except MemoryError:
            click.secho("firstdrift: it would take more memory than there is.", fg="red", err=True)
            ctx.exit(UNUSABLE)
        except BrokenPipeError:
            # What is left to be written has nowhere to go.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(EXIT_BROKEN_PIPE)
        except KeyboardInterrupt:
            ctx.exit(EXIT_INTERRUPTED)


def run() -> NoReturn:
    """Run the command as it is installed, and leave with its exit status."""
    command = sys.argv[1] if len(sys.argv) > 1 else ""
    sys.exit(run_apart(lambda: status_of(main)) if command in _READ_DUMPS else status_of(main))


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
)
@click.version_option(package_name="firstdrift")
def main() -> None:
    """Find the first token, layer and operator where two runs of a neural network part ways."""


@main.command()
@click.argument("golden", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option(
    "--csv", "csv_file", type=click.Path(path_type=Path, dir_okay=False), help="Write all pairs here."
)
@click.option(
    "--xlsx", "xlsx_file", type=click.Path(path_type=Path, dir_okay=False), help="The same as XLSX."
)
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a report of one file, for people: it opens without a server.",
)
@click.option(
    "--rules", default="firstdrift", show_default=True, metavar="NAME", help="firstdrift, msprobe or msit."
)
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="NAME=VALUE",
    help="Move a threshold of the rule set, such as factor=4 (docs/verdict.md lists them). Repeatable.",
)
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    metavar="DUMP",
    help="A healthy run: what it is off by from GOLDEN is no fault of TARGET.",
)
@click.option("--level", type=click.Choice(["layer", "module", "api", "logits"]), help="Compare only these.")
@click.option(
    "--fuzzy", is_flag=True, help="Match the same path inside a matched module whatever the call number."
)
@click.option(
    "--mapping",
    "mapping_files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Match as this file says: a mapping of msprobe (layer, data, cell) or msit (op), or a match set"
    " of firstdrift. Repeatable.",
)
@click.option(
    "--export-data-mapping",
    "data_mapping_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write which tensors were compared as a data mapping of msprobe.",
)
@click.option(
    "--export-layer-mapping",
    "layer_mapping_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write which modules were matched as a layer mapping of msprobe.",
)
@click.option(
    "--algorithm",
    "algorithms",
    multiple=True,
    metavar="FILE.py:FUNCTION",
    help="Run this function on each pair of arrays; what it returns is a further column. Repeatable.",
)
@click.option(
    "--postprocess",
    "postprocess_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Multiply tensors by matrices before, as this tensor postprocess file of msprobe says.",
)
@click.option("--no-structure", is_flag=True, help="Match by name alone, never by alignment.")
@click.option("--step", type=int, help="Compare only this step.")
@click.option("--rank", type=int, help="Compare only this rank.")
@click.option("--token", type=int, help="Compare only this token.")
@click.option("--tp", metavar="N[:N]", help="Tensor-parallel ranks of a model, golden:target if they differ.")
@click.option("--pp", metavar="N[:N]", help="Pipeline stages of a model, likewise.")
@click.option("--vpp", metavar="N[:N]", help="Chunks of layers of a stage (virtual pipeline), likewise.")
@click.option(
    "--token-offset", type=int, default=0, help="Compare golden token n with target token n + this."
)
@click.option(
    "--fail-on",
    type=click.Choice(["warning", "error"]),
    default="error",
    show_default=True,
    help="Exit with 1 if there is a pair of this verdict or worse.",
)
@click.pass_context
def compare(ctx: click.Context, /, golden: Path, target: Path, **chosen: Any) -> None:  # noqa: ANN401
    """Compare two dumps and say where they part ways.

    GOLDEN is the dump that is trusted, TARGET the one under suspicion.

    Exit status: 0 nothing at or above --fail-on, 1 something is, 2 the input, or a part of it, could not
    be read, or nothing could be judged: no values were compared, the runs were given different inputs, or
    the dumps are those of different models.
    """
    import gc

    # Millions of small records and no cycles among them: looking for some takes a fifth of the time.
    gc.disable()
    from firstdrift.comparison.compare import compare as run
    from firstdrift.comparison.report import Options
    from firstdrift.matching.plan import MatchingRules
    from firstdrift.matching.ranks.parallel_sizes import read_layouts
    from firstdrift.verdict.thresholds import thresholds_of_words

    _require_writable(chosen)
    said = _said(chosen["mapping_files"])
    layouts = read_layouts(chosen["tp"], chosen["pp"], chosen["vpp"])
    matching = MatchingRules(
        fuzzy=chosen["fuzzy"],
        structure=not chosen["no_structure"],
        step=chosen["step"],
        rank=chosen["rank"],
        token=chosen["token"],
        token_offset=chosen["token_offset"],
        mappings=said.mappings,
        edits=said.edits,
        golden_layout=layouts[0],
        target_layout=layouts[1],
    )
    options = Options(
        matching=matching,
        rules=chosen["rules"],
        level=chosen["level"],
        thresholds=thresholds_of_words(chosen["thresholds"]),
    )
    additions = _additions(chosen["algorithms"], chosen["postprocess_file"])
    with _progress_bar() as progress:
        report = run(golden, target, options, progress, baseline=chosen["baseline"], **additions)
    if chosen["as_json"]:
        from firstdrift.exports.report_json import report_object
        from firstdrift.exports.strict_json import to_json

        click.echo(to_json(report_object(report), indent=1))
    else:
        from shutil import get_terminal_size

        from firstdrift.exports.text import folded, report_text

        text = report_text(report)
        click.echo(folded(text, get_terminal_size().columns) if sys.stdout.isatty() else text)
    _write_files(report, chosen)
    from firstdrift.comparison.exit_status import exit_status

    ctx.exit(exit_status(report, chosen["fail_on"]))


@main.command()
@click.argument("dump", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option("--tree", is_flag=True, help="Show every node, with the statistics of its tensors.")
@click.option("--overflow", is_flag=True, help="List the nodes with NaN or infinities, by msprobe's levels.")
@click.option("--step", type=int, help="Of --tree and --overflow, only this step.")
@click.option("--rank", type=int, help="Likewise, only this rank.")
@click.option("--token", type=int, help="Likewise, only this token.")
@click.pass_context
def inspect(ctx: click.Context, /, dump: Path, as_json: bool, **chosen: Any) -> None:  # noqa: ANN401
    """Say what a dump is: its format and why, slices, nodes, tensors, problems.

    Exit status: 0 all of it can be read, 2 it, or a part of it, cannot; with --overflow 1 if a node
    overflows.
    """
    from firstdrift.comparison.inspection import inspect_dump
    from firstdrift.exports.strict_json import to_json
    from firstdrift.exports.text import inspection_object, inspection_text

    for name in ("step", "rank", "token"):
        if chosen[name] is not None and not (chosen["tree"] or chosen["overflow"]):
            raise click.UsageError(f"--{name} says what --tree and --overflow show: give one of them too.")
    found = inspect_dump(dump)
    if not chosen["tree"] and not chosen["overflow"]:
        click.echo(to_json(inspection_object(found), indent=1) if as_json else inspection_text(found))
        ctx.exit(0 if found.is_whole else UNUSABLE)
    from firstdrift.comparison.single_dump import view_dump
    from firstdrift.exports.one_dump import overflow_object, overflow_text, tree_lines, tree_object

    overflows, unknown, views = False, False, []
    if not as_json:
        click.echo(inspection_text(found))
    for view in view_dump(dump, chosen["step"], chosen["rank"], chosen["token"]):
        overflows, unknown = overflows or bool(view.overflow), unknown or bool(view.unknown)
        if as_json:
            views.append(view)
            continue
        if chosen["tree"]:
            for line in tree_lines(view):
                click.echo(line)
        if chosen["overflow"]:
            click.echo(overflow_text(view))
    if as_json:
        answer = inspection_object(found)
        answer |= {"tree": [tree_object(view) for view in views]} if chosen["tree"] else {}
        answer |= overflow_object(views) if chosen["overflow"] else {}
        click.echo(to_json(answer, indent=1))
    if overflows and chosen["overflow"]:
        ctx.exit(EXIT_FOUND)
    ctx.exit(0 if found.is_whole and not unknown else UNUSABLE)


_EXISTING = click.Path(path_type=Path, exists=True, file_okay=False)
_WORKERS = click.option(
    "--workers", type=click.IntRange(min=0), help="Processes that measure; 0: one per core."
)


def _refuse_token(_ctx: click.Context, _option: click.Parameter, given: str | None) -> None:
    if given is not None:
        from firstdrift.errors import SettingsError

        raise SettingsError(
            "--token would show the token in the list of processes",
            hint="Set FIRSTDRIFT_TOKEN, or give a file with --token-file",
        )


def _server_options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--host", help="Address to listen at (127.0.0.1); beyond loopback a token is needed."),
        click.option("--port", type=click.IntRange(0, 65535), help="Port to listen at (8765)."),
        click.option("--data-dir", type=click.Path(path_type=Path), help="Where the database lies."),
        click.option("--database-url", help="SQLAlchemy URL of a database, instead of SQLite in --data-dir."),
        click.option(
            "--token", hidden=True, expose_value=False, callback=_refuse_token, help="Use --token-file."
        ),
        click.option(
            "--token-file",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Holds the token that visitors must show; only its owner may be able to read it. Without it,"
            " and without FIRSTDRIFT_TOKEN, a token is made up and printed in the address.",
        ),
        click.option(
            "--no-token",
            is_flag=True,
            default=None,
            help="Ask for no token: everybody with an account on this machine can read, change and delete.",
        ),
    ):
        command = option(command)
    return command


@main.command()
@click.argument("roots", nargs=-1, type=_EXISTING)
@_server_options
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
    roots: tuple[Path, ...],
    wanted: tuple[tuple[Path, Path], ...],
    **chosen: Any,  # noqa: ANN401
) -> None:
    """Serve the pages, and compare in the background, on this machine.

    ROOTS are the directories that may be browsed; the current one if none is given.
    """
    import gc

    # What is imported stays, in this process and in the copy of it that becomes the web process.
    gc.disable()
    from firstdrift.serving import describe_address
    from firstdrift.serving import serve as run

    settings = _server_settings(roots, chosen)
    ctx.exit(run(settings, wanted, lambda url, made: click.echo(describe_address(url, settings, made))))


@main.command()
@click.argument("roots", nargs=-1, type=_EXISTING)
@_server_options
def server(roots: tuple[Path, ...], **chosen: Any) -> None:  # noqa: ANN401
    """Run the web process alone; a worker on the same database does the comparing."""
    from firstdrift.serving import describe_address
    from firstdrift_server import run

    settings = _server_settings(roots, chosen)
    run(settings, lambda url: click.echo(describe_address(url, settings)))


@main.command()
@click.argument("roots", nargs=-1, type=click.Path(path_type=Path))
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the database lies.")
@click.option("--database-url", help="SQLAlchemy URL of a database, instead of SQLite in --data-dir.")
@_WORKERS
@click.option(
    "--end-with-parent",
    type=int,
    hidden=True,
    help="Stop when the process that started this, so numbered, ends.",
)
def worker(roots: tuple[Path, ...], end_with_parent: int | None, **chosen: Any) -> None:  # noqa: ANN401
    """Run the background process alone: take comparisons from the database and do them.

    ROOTS are the directories outside of which it reads nothing, as the server was given them; without any,
    it reads every dump that it is asked to.
    """
    from firstdrift.processes.limits import Limits
    from firstdrift_server.settings import settings_from
    from firstdrift_worker.main import work_until_signal

    settings = settings_from(roots=roots or None, **chosen, **_NO_SERVER)
    _prepare_data_dir(settings)
    if end_with_parent is not None:
        from firstdrift.serving import stop_without_parent

        stop_without_parent(end_with_parent)
    bounds = (*settings.roots, settings.uploads) if settings.roots else None
    limits = Limits(settings.job_memory, settings.reading_seconds)
    work_until_signal(settings.database, processes=settings.workers, roots=bounds, limits=limits)


@main.command()
@click.argument("roots", nargs=-1, type=click.Path(path_type=Path))
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the database lies.")
@click.option("--database-url", help="SQLAlchemy URL of a database, instead of SQLite in --data-dir.")
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
    from firstdrift.exports.text import printable
    from firstdrift_server.settings import settings_from

    # What is not there is not made.
    settings = settings_from(roots=roots or None, **chosen, **_NO_SERVER)
    if not settings.roots:
        settings = settings_from(roots=(Path.cwd(),), **chosen, **_NO_SERVER)
    good = True
    for finding in examine(settings, None if quick else seconds):
        click.echo(f"{finding.mark:<4}  {finding.subject:<10} {printable(finding.said)}")
        good = good and finding.good
    ctx.exit(0 if good else EXIT_FOUND)


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the database lies.")
@click.option("--database-url", help="SQLAlchemy URL of the database, if it does not lie in --data-dir.")
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
    with _pages_bar("copying") as shown:
        size = back_up(_database(chosen), file, force=force, shown=shown)
    source = make_url(_database(chosen)).database
    click.echo(f"{_plain(file)}: {size:,} bytes, a copy of {source}")


@main.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--data-dir", type=click.Path(path_type=Path), help="Where the database is to lie.")
@click.option("--database-url", help="SQLAlchemy URL of the database, if it does not lie in --data-dir.")
def restore(file: Path, **chosen: Any) -> None:  # noqa: ANN401
    """Make FILE, a backup, the database again, once server and workers are stopped.

    The database that was there is kept beside it under another name. Uploaded dumps are not touched.
    """
    from firstdrift.catalogue.backup import restore as put_back
    from firstdrift.serving import leave_on_sigterm

    leave_on_sigterm()
    with _pages_bar("restoring") as shown:
        kept = put_back(file, _database(chosen), shown=shown)
    click.echo("restored" + (f"; what was there before is {_plain(kept)}" if kept else ""))


def _plain(path: Path) -> str:
    from firstdrift.exports.text import printable

    return printable(str(path))


def _database(chosen: dict[str, Any]) -> str:
    from firstdrift_server.settings import settings_from

    return settings_from(roots=(), **chosen, **_NO_SERVER).database


def _settings(roots: tuple[Path, ...], chosen: dict[str, Any]) -> "Settings":
    from firstdrift_server.settings import settings_from

    settings = settings_from(roots=roots or None, **chosen)
    if not settings.roots:
        settings = settings_from(roots=(Path.cwd(),), **chosen)
    _prepare_data_dir(settings)
    return settings


_NO_SERVER = {"host": "127.0.0.1", "token": "", "token_file": ""}
"""Where to listen, and to whom, is the server's business: others start without a token, and make none up."""


def _server_settings(roots: tuple[Path, ...], chosen: dict[str, Any]) -> "Settings":
    settings = _settings(roots, chosen).with_token()
    if settings.token is None:
        listed = ", ".join(map(str, settings.roots))
        warning = (
            "firstdrift: no token is asked for: everybody with an account on this machine can read every dump"
            f" under {listed}, and change and delete what firstdrift keeps in {settings.data_dir}"
        )
        click.secho(warning, fg="red", err=True)
    return settings


def _prepare_data_dir(settings: "Settings") -> None:
    """Make the data directory; it, and what is written from now on, is for its owner alone."""
    from firstdrift.catalogue.private import keep_to_owner, make_folder
    from firstdrift_server.settings import default_data_dir

    os.umask(0o077)
    make_folder(settings.data_dir)
    for change in keep_to_owner(settings.data_dir, is_default=settings.data_dir == default_data_dir()):
        click.echo(f"firstdrift: {change}", err=True)


def _said(files: tuple[Path, ...]) -> "MatchSetFile":
    from firstdrift.matching.manual.edits import MatchSetFile

    if not files:
        return MatchSetFile("")
    from firstdrift.matching.manual.match_set_file import read_matches

    return read_matches(files)


def _additions(algorithms: tuple[str, ...], postprocess: Path | None) -> dict[str, Any]:
    """Read what is done beside what the options say; nothing is imported for nothing."""
    found: dict[str, Any] = {}
    if algorithms:
        from firstdrift.comparison.algorithms import load_algorithms

        found["algorithms"] = load_algorithms(algorithms)
    if postprocess is not None:
        from firstdrift.comparison.postprocess import read_postprocess

        found["postprocess"] = read_postprocess(postprocess)
    return found


_FILES = ("csv_file", "xlsx_file", "html_file", "data_mapping_file", "layer_mapping_file")


def _require_writable(chosen: dict[str, Any]) -> None:
    """Refuse files that cannot be written before hours are spent on what is to be in them."""
    from firstdrift.errors import SettingsError

    for file in filter(None, map(chosen.get, _FILES)):
        if str(file) == "-":
            raise SettingsError("a report is written to a file, not to the terminal", hint="Give it a name")
        if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
            raise SettingsError(
                "the report cannot be written there",
                path=file,
                hint="The directory must exist, and it must be allowed to write to it",
            )


def _write_files(report: "Report", chosen: dict[str, Any]) -> None:
    if not any(map(chosen.get, _FILES)):
        return
    from firstdrift.errors import SettingsError
    from firstdrift.exports.mapping_yaml import write_data_mapping, write_layer_mapping
    from firstdrift.exports.spreadsheets import write_csv, write_xlsx

    writers: dict[str, Callable[[Report, Path], None]] = {
        "csv_file": write_csv,
        "xlsx_file": write_xlsx,
        "html_file": _write_html,
        "data_mapping_file": write_data_mapping,
        "layer_mapping_file": write_layer_mapping,
    }
    for option, write in writers.items():
        file = chosen[option]
        if file is None:
            continue
        try:
            write(report, file)
        except OSError as error:
            raise SettingsError(
                f"the report could not be written ({error.strerror})", path=error.filename or file
            ) from error


def _write_html(report: "Report", file: Path) -> None:
    """Write the report for people."""
    from firstdrift.exports.summary import summary_of
    from firstdrift_frontend.report import report_html

    file.write_text(report_html(summary_of(report)), "utf-8", newline="\n")


@contextmanager
def _pages_bar(said: str) -> "Iterator[Callable[[int, int], None] | None]":
    """Show how much of a database is copied, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich
    from rich.console import Console

    with rich.Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(said, total=None)
        yield lambda done, pages: bar.update(task, completed=done, total=pages)


@contextmanager
def _progress_bar() -> "Iterator[Callable[[Progress], None]]":
    """Show a bar on a terminal; stay silent where nobody looks."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich import progress as rich
    from rich.console import Console

    description = rich.TextColumn("{task.description}")
    columns = (description, rich.BarColumn(), rich.MofNCompleteColumn(), rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def show(at: "Progress") -> None:
            slices = f" (slice {at.slices_done + 1} of {at.slices_total})" if at.slices_total > 1 else ""
            bar.update(
                task, description=at.stage + slices, completed=at.pairs_done, total=at.pairs_total or None
            )

        yield show


if __name__ == "__main__":
    run()
