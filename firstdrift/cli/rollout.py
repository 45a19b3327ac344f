"""`firstdrift rollout`: log-probabilities of a rollout engine against those of a trainer."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firstdrift.cli.places import at_hand
from firstdrift.cli.reports import require_writable, write_file
from firstdrift.exits import FOUND, UNUSABLE
from firstdrift.remote.addresses import naming_addresses
from firstdrift.wording.message import Message

if TYPE_CHECKING:
    from firstdrift.rollout.report import RolloutReport

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command()
@click.argument("rollout", type=click.Path())
@click.argument("trainer", type=click.Path(), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option("--csv", "csv_file", type=_FILE, help="Write all tokens here.")
@click.option(
    "--band",
    nargs=2,
    type=float,
    default=(0.8, 1.2),
    show_default=True,
    metavar="LOW HIGH",
    help="Ratios outside of it are counted.",
)
@click.option(
    "--dtype",
    type=click.Choice(["bfloat16", "float16", "float32"]),
    default="bfloat16",
    show_default=True,
    help="In which the model was computed, of both sides the coarser one: what rounding explains.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["any", "drifting", "band"]),
    default="any",
    show_default=True,
    help="Exit with 1 if not all is within rounding, only if all drifts, or if a ratio is outside the band.",
)
@click.option(
    "--dumps",
    nargs=2,
    type=click.Path(),
    metavar="GOLDEN TARGET",
    help="Then compare these dumps of the worst sequence, at the token where it left the noise.",
)
@click.pass_context
@naming_addresses()
def rollout(ctx: click.Context, /, rollout: str, trainer: str | None, **chosen: Any) -> None:  # noqa: ANN401
    """Compare the log-probabilities that two engines gave to the same tokens.

    ROLLOUT is what the engine that generated them wrote, TRAINER what the trainer computed: JSON lines or
    Parquet, a file or a folder, or the address of one (docs/remote.md). Without TRAINER, both are read from
    the rows of ROLLOUT.

    Exit status: 0 nothing that --fail-on asks for, 1 something, 2 a part of the input could not be read, or
    no token could be compared.
    """
    from firstdrift.rollout.compare import compare_rollout

    require_writable(chosen)
    sides = at_hand(rollout), at_hand(trainer or rollout)
    report = compare_rollout(*sides, _options(chosen))
    _print(report, chosen)
    ctx.exit(_status(report, chosen["fail_on"]))


def _options(chosen: dict[str, Any]) -> Any:  # noqa: ANN401 (imported when it is needed)
    from firstdrift.rollout.report import options_of

    return options_of(chosen["band"], chosen["dtype"])


def _print(report: "RolloutReport", chosen: dict[str, Any]) -> None:
    from firstdrift.exports.rollout import rollout_object, rollout_text, write_rollout_csv

    compared = _compare_dumps(report, chosen["dumps"]) if chosen["dumps"] else None
    if chosen["as_json"]:
        from firstdrift.exports.report_json import report_object
        from firstdrift.strict_json import to_json

        found = rollout_object(report)
        click.echo(
            to_json(found if compared is None else found | {"dumps": report_object(compared[1])}, indent=1)
        )
    else:
        from firstdrift.exports.text import report_text
        from firstdrift.wording.text import text_of

        click.echo(rollout_text(report))
        if compared is not None:
            click.echo(f"\n{text_of(compared[0])}\n{report_text(compared[1])}")
    write_file(write_rollout_csv, report, chosen["csv_file"])


def _compare_dumps(report: "RolloutReport", dumps: tuple[str, str]) -> Any:  # noqa: ANN401 (as above)
    """Compare dumps of the worst sequence, of which token n made the n-th generated token likely."""
    from firstdrift.comparison.compare import compare
    from firstdrift.comparison.report import Options
    from firstdrift.errors import SettingsError
    from firstdrift.matching.plan import MatchingRules

    token = next((pair.first_found for pair in report.pairs if pair.first_found is not None), 0)
    try:
        found = compare(*dumps, Options(matching=MatchingRules(token=token)))
    except SettingsError:
        return Message.of("rollout.text.operator_whole", token=token), compare(*dumps, Options())
    return Message.of("rollout.text.operator_token", token=token), found


def _status(report: "RolloutReport", fail_on: str) -> int:
    from firstdrift.rollout.report import RolloutVerdict

    if report.verdict is RolloutVerdict.TOO_LITTLE:
        return UNUSABLE
    fails = {
        "any": report.verdict is not RolloutVerdict.WITHIN,
        "drifting": report.verdict is RolloutVerdict.DRIFTING,
        "band": report.statistics.outside > 0,
    }
    if fails[fail_on]:
        return FOUND
    return UNUSABLE if report.counts.unreadable else 0
