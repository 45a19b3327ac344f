"""`firstdrift compare`: two dumps in, an answer and an exit status out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firstdrift.cli.progress import progress_bar
from firstdrift.cli.reports import require_writable, write_files, writes_files

if TYPE_CHECKING:
    from firstdrift.comparison.report import Options, Report
    from firstdrift.comparison.side_by_side import Crew
    from firstdrift.comparison.user_hooks import Additions
    from firstdrift.matching.manual.edits import MatchSetFile


_kept: "list[Report]" = []
"""What was compared last, until the process ends: to take it apart bit by bit would take time for nothing."""

_PATH = click.Path(path_type=Path)
_PLACE = click.Path()
"""A path, or an address: a path would lose a slash of it."""

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("golden", type=_PLACE)
@click.argument("target", type=_PLACE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option("--csv", "csv_file", type=_FILE, help="Write all pairs here.")
@click.option("--xlsx", "xlsx_file", type=_FILE, help="The same as XLSX.")
@click.option(
    "--columns",
    type=click.Choice(["firstdrift", "msit", "msprobe"]),
    default="firstdrift",
    show_default=True,
    help="In whose columns --csv and --xlsx are written; for msit with the sheets layer, module and api.",
)
@click.option(
    "--advisor",
    "advisor_file",
    type=_FILE,
    metavar="FILE",
    help="Write where to look first and what to check, as the advisor.txt of earlier versions of msprobe.",
)
@click.option(
    "--html",
    "html_file",
    type=_FILE,
    help="Write a report of one file, for people: it opens without a server.",
)
@click.option(
    "--rules",
    default="firstdrift",
    show_default=True,
    metavar="NAME",
    help="firstdrift, msprobe, msit, or bitwise: the first element of which a bit differs.",
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
    type=_PLACE,
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
    type=_PATH,
    metavar="FILE",
    help="Match as this file says: a mapping of msprobe (layer, data, cell, api) or msit (op), or a match set"
    " or view mapping of firstdrift. Repeatable.",
)
@click.option(
    "--export-data-mapping",
    "data_mapping_file",
    type=_FILE,
    metavar="FILE",
    help="Write which tensors were compared as a data mapping of msprobe.",
)
@click.option(
    "--export-layer-mapping",
    "layer_mapping_file",
    type=_FILE,
    metavar="FILE",
    help="Write which modules were matched as a layer mapping of msprobe.",
)
@click.option(
    "--export-view-mapping",
    "view_mapping_file",
    type=_FILE,
    metavar="FILE",
    help="Write which tensors were joined, split or laid out anew, and how, as a mapping of firstdrift.",
)
@click.option(
    "--suggest-mapping",
    "suggested_file",
    type=_FILE,
    metavar="FILE",
    help="Write probable matches of unmatched nodes: a match set to edit and give to --mapping.",
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
    type=_FILE,
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
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Read and measure with so many processes; as many as there are cores, unless said.",
)
@click.option(
    "--cluster",
    metavar="ADDRESS",
    envvar="FIRSTDRIFT_CLUSTER",
    help="Have a Dask cluster do the work: the address of its scheduler, tcp://host:8786.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["warning", "error", "likely", "certain"]),
    default="error",
    show_default=True,
    help="Exit with 1 if there is a pair of this verdict or worse, or a finding that is at least so sure.",
)
@click.pass_context
def compare(ctx: click.Context, /, golden: str, target: str, **chosen: Any) -> None:  # noqa: ANN401
    """Compare two dumps and say where they part ways.

    GOLDEN is the dump that is trusted, TARGET the one under suspicion: folders, or addresses such as
    s3://bucket/golden (docs/remote.md).

    Exit status: 0 nothing at or above --fail-on, 1 something is, 2 the input, or a part of it, could not
    be read, or nothing could be judged: too little was compared, the runs were given different inputs, or
    the dumps are those of different models.
    """
    import gc
    import os

    # Millions of small records and no cycles among them: looking for some takes a fifth of the time.
    gc.disable()
    # numpy's threads would wait for work, and keep the processor from the processes that share it.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from firstdrift.comparison.compare import compare_dumps
    from firstdrift.comparison.exit_status import exit_status
    from firstdrift.processes.copies import allow_copies
    from firstdrift.processes.limits import usable_cores

    require_writable(chosen)
    allow_copies((chosen["jobs"] or usable_cores()) - 1)
    options = _options(chosen)
    additions = _additions(chosen["algorithms"], chosen["postprocess_file"])
    details = bool(chosen["algorithms"]) or writes_files(chosen)
    crew = _crew(chosen["cluster"])
    with progress_bar() as progress:
        report = compare_dumps(
            (golden, target), options, progress, additions, chosen["baseline"], details=details, crew=crew
        )
    _kept[:] = [report]
    _print(report, as_json=chosen["as_json"])
    write_files(report, chosen)
    ctx.exit(exit_status(report, chosen["fail_on"]))


def _crew(address: str | None) -> "Crew | None":
    if not address:
        return None
    from firstdrift.cluster.lanes import Cluster

    return Cluster(address)


def _options(chosen: dict[str, Any]) -> "Options":
    from firstdrift.comparison.report import Options
    from firstdrift.matching.plan import MatchingRules
    from firstdrift.matching.ranks.parallel_sizes import read_layouts
    from firstdrift.verdict.movable_thresholds import thresholds_of_words

    said = _said(chosen["mapping_files"])
    golden_layout, target_layout = read_layouts(chosen["tp"], chosen["pp"], chosen["vpp"])
    matching = MatchingRules(
        **{name: chosen[name] for name in ("fuzzy", "step", "rank", "token", "token_offset")},
        structure=not chosen["no_structure"],
        mappings=said.mappings,
        edits=said.edits,
        golden_layout=golden_layout,
        target_layout=target_layout,
    )
    return Options(
        matching=matching,
        rules=chosen["rules"],
        level=chosen["level"],
        thresholds=thresholds_of_words(chosen["thresholds"]),
    )


def _print(report: "Report", *, as_json: bool) -> None:
    if as_json:
        from firstdrift.exports.report_json import report_object
        from firstdrift.strict_json import to_json

        click.echo(to_json(report_object(report), indent=1))
        return
    from shutil import get_terminal_size

    from firstdrift.exports.text import folded, report_text

    text = report_text(report)
    click.echo(folded(text, get_terminal_size().columns) if sys.stdout.isatty() else text)


def _said(files: tuple[Path, ...]) -> "MatchSetFile":
    from firstdrift.matching.manual.edits import MatchSetFile

    if not files:
        return MatchSetFile("")
    from firstdrift.matching.manual.match_set_file import read_matches

    return read_matches(files)


def _additions(algorithms: tuple[str, ...], postprocess: Path | None) -> "Additions":
    """Read what is done beside what the options say; nothing is imported for nothing."""
    from msgspec.structs import replace

    from firstdrift.comparison.user_hooks import Additions

    found = Additions()
    if algorithms:
        from firstdrift.comparison.algorithms import load_algorithms

        found = replace(found, algorithms=tuple(load_algorithms(algorithms)))
    if postprocess is not None:
        from firstdrift.comparison.postprocess import read_postprocess

        found = replace(found, postprocess=read_postprocess(postprocess))
    return found
