"""Places that a command is given: paths, or addresses on another host (docs/remote.md)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

from firstdrift.cli.progress import pages_bar
from firstdrift.remote.addresses import is_address


class Place(click.Path):
    """A path, or an address, which is left as it is: a path would lose a slash of it."""

    def convert(
        self,
        value: Any,  # noqa: ANN401 (as click has it)
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:  # noqa: ANN401
        """Look whether there is something at a path; an address is asked for later."""
        return value if is_address(value) else super().convert(value, param, ctx)


def at_hand(place: Path | str) -> Path:
    """Return where a place is read: an address, where it was fetched to.

    Raises:
        DumpError: nothing lies at the address, or it cannot be fetched.
        LimitError: there is no room for it.
    """
    if not is_address(place):
        return Path(place)
    from firstdrift.remote.fetch import fetched

    with pages_bar("fetching") as show:
        return fetched(str(place), show or (lambda _done, _total: None))


def all_at_hand(places: Iterable[Path | str]) -> tuple[Path, ...]:
    """Return where places are read, likewise."""
    return tuple(map(at_hand, places))
