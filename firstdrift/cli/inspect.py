"""`firstdrift inspect`: what a dump is, without a partner."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from firstdrift.cli.places import at_hand
from firstdrift.exits import FOUND, UNUSABLE
from firstdrift.groups import known_items
from firstdrift.remote.addresses import naming_addresses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firstdrift.comparison.inspection import Inspection
    from firstdrift.comparison.single_dump import SliceView


@click.command()
@click.argument("place", metavar="DUMP", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option("--tree", is_flag=True, help="Show every node, with the statistics of its tensors.")
@click.option("--overflow", is_flag=True, help="List the nodes with NaN or infinities, by msprobe's levels.")
@click.option("--step", type=int, help="Of --tree and --overflow, only this step.")
@click.option("--rank", type=int, help="Likewise, only this rank.")
@click.option("--token", type=int, help="Likewise, only this token.")
@click.pass_context
@naming_addresses()
def inspect(
    ctx: click.Context,
    /,
    place: str,
    as_json: bool,
    tree: bool,
    overflow: bool,
    **coordinates: int | None,
) -> None:
    """Say what a dump is: its format and why, slices, nodes, tensors, problems.

    DUMP is a folder, or an address such as s3://bucket/golden (docs/remote.md).

    Exit status: 0 all of it can be read, 2 it, or a part of it, cannot; with --overflow 1 if a node
    overflows.
    """
    from firstdrift.comparison.inspection import inspect_dump
    from firstdrift.exports.text import inspection_text

    is_shown, wanted = tree or overflow, known_items(coordinates)
    if wanted and not is_shown:
        raise click.UsageError(
            f"--{next(iter(wanted))} says what --tree and --overflow show: give one of them too."
        )
    dump = at_hand(place)
    found = inspect_dump(dump)
    if not as_json:
        click.echo(inspection_text(found))
    views: list[SliceView] = []
    show = views.append if as_json else partial(_print, tree=tree, overflow=overflow)
    overflows, is_whole = False, found.is_whole
    for view in _views(dump, coordinates) if is_shown else ():
        overflows |= overflow and bool(view.overflow)
        is_whole &= not view.unknown
        show(view)
    if as_json:
        _print_object(found, views, tree=tree, overflow=overflow)
    ctx.exit(FOUND if overflows else 0 if is_whole else UNUSABLE)


def _views(dump: Path, coordinates: dict[str, int | None]) -> "Iterator[SliceView]":
    from firstdrift.comparison.single_dump import view_dump

    return view_dump(dump, **coordinates)


def _print(view: "SliceView", *, tree: bool, overflow: bool) -> None:
    from firstdrift.exports.one_dump import overflow_text, tree_lines

    for line in tree_lines(view) if tree else ():
        click.echo(line)
    if overflow:
        click.echo(overflow_text(view))


def _print_object(found: "Inspection", views: "list[SliceView]", *, tree: bool, overflow: bool) -> None:
    from firstdrift.exports.text import inspection_object
    from firstdrift.strict_json import to_json

    answer = inspection_object(found)
    if tree or overflow:
        from firstdrift.exports.one_dump import overflows_object, tree_object

        answer |= {"tree": list(map(tree_object, views))} if tree else {}
        answer |= overflows_object(views) if overflow else {}
    click.echo(to_json(answer, indent=1))
