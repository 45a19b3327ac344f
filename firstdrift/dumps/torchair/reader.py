"""Read TorchAir dumps: of the FX graph that torch runs, and of the graph that was compiled from it (GE).

    FX   mm-aten.mm.default.OUTPUT.0.….npy          →   output.0 of mm-aten.mm.default, an aten.mm
    GE   MatMulV2.MatMul.2.7.1734070081497001       →   all tensors of MatMul, a MatMulV2

A slice is one execution: a rank and a token. Where several graphs ran, each is a module of its slice. The
text of a graph says from which FX nodes a compiled operator was made: they are its `sources`.
"""

import os
import re
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from firstdrift.dumps.reader import DumpReader, Part
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import folder_entries, printable, refused_links, shown_below, written_at
from firstdrift.dumps.torchair.layout import GRAPH_TEXT, Run, Side, find_runs, find_side, graph_texts, is_root
from firstdrift.errors import DumpUnreadableError
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import (
    RECORDED_ORDER,
    Dump,
    OrderOrigin,
    OrderSource,
    Problem,
    Slice,
    SliceListing,
)
from firstdrift.wording.message import Message, joined

if TYPE_CHECKING:
    from firstdrift.dumps.torchair.operators import Compiled

_MANY_GRAPHS = 2


class TorchairReader(DumpReader):
    """The `DumpReader` of one form of TorchAir dumps."""

    title = Message.of("dumps.torchair.title")
    part = Part(
        re.compile(r"/worldsize[0-9]+_global_rank[0-9]+(?:/|$)"),
        Message.of("dumps.torchair.part"),
        Message.of("dumps.torchair.choose_whole"),
    )
    side: ClassVar[Side]
    has_texts: ClassVar[bool] = False

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is, holds or lies in one TorchAir dump of this form."""
        root = self._root(path)
        if root is None:
            return ()
        where = printable(Path(os.path.realpath(root)).name)
        texts = [entry.name for entry, _ in folder_entries(root) if GRAPH_TEXT.fullmatch(entry.name)]
        return (
            Message.of(f"dumps.torchair.{self.side}_operators", folder=where),
            *(Message.of("dumps.torchair.graph_text", file=printable(text)) for text in texts[:1]),
        )

    def is_marked(self, folder: Path) -> bool:
        """Tell whether a folder holds a TorchAir dump, by the names of what lies directly in it."""
        return is_root(folder)

    def _root(self, path: Path) -> Path | None:
        """Return the root of the one dump of this form at or below a path."""
        found = find_side(path)
        return found[1] if found and found[0] is self.side else None

    def open_dump(self, path: Path) -> Dump:
        """List the tokens of each rank."""
        root = self._root(path)
        if root is None:
            raise self.none_at(path)
        runs = find_runs(path, self.side)
        listings = (SliceListing(group[0].coordinates, _common(group)) for group in _by_slice(runs))
        problems = [*_doubles(runs, path), *_links(path, runs), *_of_the_other_side(path, self.side)]
        attributes: dict[str, str | Message] = {
            "framework": "torchair",
            "side": Message.of(f"dumps.torchair.side.{self.side}"),
            "graphs": _names(dict.fromkeys(run.graph for run in runs)),
        }
        texts = sorted({text for run in runs for text in graph_texts(run)}) if self.has_texts else []
        if texts:
            attributes["graph texts"] = _names(text.name for text in texts)
        elif self.has_texts:
            problems.append(Problem(printable(root.name), Message.of("dumps.torchair.no_graph_text")))
        return self.dump(path, listings, problems, attributes)

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the operators of a token."""
        runs = _known_runs(dump, self.side)
        mine = [group for group in _by_slice(runs) if group[0].coordinates == listing.coordinates]
        if not mine:
            raise DumpUnreadableError(Message.of("dumps.token_gone"), path=listing.directory)
        is_nested = len({run.graph for run in runs}) >= _MANY_GRAPHS
        bounds = Bounds.around(dump.path)
        graphs = [(run, self._read_run(run, bounds)) for run in mine[0]]
        nodes: list[Node] = []
        for run, graph in sorted(graphs, key=_began):
            nodes += _nodes(graph, len(nodes), printable(run.graph) if is_nested else None)
        problems = chain.from_iterable(
            _placed(graph.notes, shown_below(run.folder, dump.path)) for run, graph in graphs
        )
        orders = dict.fromkeys(_order_message(graph.moved) for _, graph in graphs)
        origin = OrderOrigin(OrderSource.RECORDED, joined(*orders))
        return Slice(listing, tuple(nodes), origin, problems=tuple(problems))

    @abstractmethod
    def _read_run(self, run: Run, bounds: Bounds) -> "Compiled":
        """Read one execution of one graph."""


class TorchairFxReader(TorchairReader):
    """The reader of dumps of FX graphs."""

    format = "torchair-fx"
    side = Side.FX

    def _read_run(self, run: Run, bounds: Bounds) -> "Compiled":
        from firstdrift.dumps.torchair.operators import as_they_ran, read_fx

        return as_they_ran(*read_fx(run.folder, bounds))


class TorchairGeReader(TorchairReader):
    """The reader of dumps of compiled graphs."""

    format = "torchair-ge"
    side = Side.GE
    has_texts = True

    def _read_run(self, run: Run, bounds: Bounds) -> "Compiled":
        from firstdrift.dumps.torchair.operators import read_ge, with_origins

        return with_origins(run, *read_ge(run.folder, bounds))


def _placed(notes: Iterable[tuple[str, Message]], where: str) -> list[Problem]:
    return [Problem(f"{where}/{file}" if file else where, note) for file, note in notes]


def _order_message(moved: int) -> Message:
    if not moved:
        return RECORDED_ORDER.message
    return Message.of("dumps.order.recorded_but_moved", operators=moved)


def _names(names: Iterable[str]) -> str:
    return ", ".join(map(printable, names))


def _nodes(graph: "Compiled", first: int, around: str | None) -> Iterator[Node]:
    """Make a node of each operator, and of the graph around them if it is one of several."""
    by_name = {operator.name: operator for operator in graph.operators}
    for at, name in enumerate(graph.order, start=first):
        operator = by_name[name]
        yield Node(
            name=f"{around}.{name}" if around else name,
            path=operator.path,
            kind=NodeKind.API,
            type_name=operator.type_name,
            direction=Direction.FORWARD,
            call=operator.call,
            order=at,
            parent=around,
            tensors=operator.tensors,
            sources=graph.sources.get(name, ()),
        )
    if around:
        order = first + len(graph.order)
        yield Node(around, around, NodeKind.MODULE, "Graph", Direction.FORWARD, 0, order, None, ())


def _known_runs(dump: Dump, side: Side) -> tuple[Run, ...]:
    """Return the runs of a dump, found anew if folders came or went."""
    around = sorted({dump.path, *(listing.directory.parent for listing in dump.slices)})
    return _runs(dump.path, side, tuple(map(written_at, around)))


@lru_cache(maxsize=4)
def _runs(path: Path, side: Side, _stamps: tuple[int, ...]) -> tuple[Run, ...]:
    return find_runs(path, side)


def _began(graph: "tuple[Run, Compiled]") -> tuple[int, str]:
    run, compiled = graph
    return min((operator.time[0] for operator in compiled.operators), default=0), run.graph


def _by_slice(runs: Iterable[Run]) -> list[list[Run]]:
    """Group the graphs of each token; of two executions of one graph in it, the first counts."""
    groups: defaultdict[object, dict[str, Run]] = defaultdict(dict)
    for run in runs:
        groups[run.coordinates].setdefault(run.graph, run)
    return [list(group.values()) for group in groups.values()]


def _doubles(runs: Iterable[Run], path: Path) -> Iterator[Problem]:
    seen: dict[object, Run] = {}
    for run in runs:
        first = seen.setdefault((run.coordinates, run.graph), run)
        if first is not run:
            reason = Message.of(
                "dumps.torchair.run_twice",
                slice=run.coordinates.name(),
                graph=printable(run.graph),
                other=shown_below(first.folder, path),
            )
            yield Problem(shown_below(run.folder, path), reason)


def _of_the_other_side(path: Path, side: Side) -> Iterator[Problem]:
    other = Side.GE if side is Side.FX else Side.FX
    for run in find_runs(path, other)[:1]:
        yield Problem(shown_below(run.folder, path), Message.of(f"dumps.torchair.{other}_left_out"))


def _links(path: Path, runs: Iterable[Run]) -> Iterator[Problem]:
    bounds = Bounds.around(path)
    around = {folder for run in runs for folder in run.folder.parents if folder.is_relative_to(path)}
    for folder in sorted(around):
        for name, reason in refused_links(folder, bounds):
            yield Problem(shown_below(folder / name, path), reason)


def _common(runs: Sequence[Run]) -> Path:
    folders = [run.folder for run in runs]
    return folders[0] if len(folders) == 1 else Path(os.path.commonpath(folders))
