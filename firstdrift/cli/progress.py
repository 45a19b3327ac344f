"""How far a long command has come, for whoever looks at a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firstdrift.comparison.from_dumps import Progress


@contextmanager
def pages_bar(said: str) -> Iterator[Callable[[int, int], None] | None]:
    """Show how much of a database, or of a dump, is copied, on a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich
    from rich.console import Console

    with rich.Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(said, total=None)
        yield lambda done, pages: bar.update(task, completed=done, total=pages)


@contextmanager
def progress_bar() -> "Iterator[Callable[[Progress], None]]":
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
