"""`firstdrift inspect`: what a dump is, without a partner."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from firstdrift.exits import FOUND, UNUSABLE

if TYPE_CHECKING:
    from firstdrift.comparison.inspection import Inspection


@click.command()
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
    from firstdrift.exports.text import inspection_object, inspection_text
    from firstdrift.strict_json import to_json

    for name in ("step", "rank", "token"):
        if chosen[name] is not None and not (chosen["tree"] or chosen["overflow"]):
            raise click.UsageError(f"--{name} says what --tree and --overflow show: give one of them too.")
    found = inspect_dump(dump)
    if not chosen["tree"] and not chosen["overflow"]:
        click.echo(to_json(inspection_object(found), indent=1) if as_json else inspection_text(found))
        ctx.exit(0 if found.is_whole else UNUSABLE)
    if not as_json:
        click.echo(inspection_text(found))
    overflows, unknown = _show_views(dump, found, as_json=as_json, **chosen)
    if overflows and chosen["overflow"]:
        ctx.exit(FOUND)
    ctx.exit(0 if found.is_whole and not unknown else UNUSABLE)


def _show_views(
    dump: Path, found: "Inspection", *, as_json: bool, tree: bool, overflow: bool, **place: int | None
) -> tuple[bool, bool]:
    """Show the trees or overflows of slices; return whether a node overflows, and whether that is unknown."""
    from firstdrift.comparison.single_dump import view_dump
    from firstdrift.exports.one_dump import overflow_object, overflow_text, tree_lines, tree_object
    from firstdrift.exports.text import inspection_object
    from firstdrift.strict_json import to_json

    overflows, unknown, views = False, False, []
    for view in view_dump(dump, place["step"], place["rank"], place["token"]):
        overflows, unknown = overflows or bool(view.overflow), unknown or bool(view.unknown)
        if as_json:
            views.append(view)
            continue
        if tree:
            for line in tree_lines(view):
                click.echo(line)
        if overflow:
            click.echo(overflow_text(view))
    if as_json:
        answer = inspection_object(found)
        answer |= {"tree": [tree_object(view) for view in views]} if tree else {}
        answer |= overflow_object(views) if overflow else {}
        click.echo(to_json(answer, indent=1))
    return overflows, unknown
