"""Read TorchAir dumps: of the FX graph that torch runs, and of the graph that was compiled from it (GE).

    FX   mm-aten.mm.default.OUTPUT.0.….npy          →   output.0 of mm-aten.mm.default, an aten.mm
    GE   MatMulV2.MatMul.2.7.1734070081497001       →   all tensors of MatMul, a MatMulV2

A slice is one execution: a rank and a token. Where several graphs ran, each is a module of its slice. The
text of a graph says from which FX nodes a compiled operator was made: they are its `sources`.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from firstdrift.dumps.bounds import Bounds
from firstdrift.dumps.containers.contents import DamagedError, file_contents
from firstdrift.dumps.dump import Direction, Dump, Node, NodeKind, Problem, Slice, SliceListing, Source
from firstdrift.dumps.execution_order import OPERATOR, finish_order
from firstdrift.dumps.folders import folder_entries, printable, refused_links
from firstdrift.dumps.torchair_graph import Graph, parse_graph
from firstdrift.dumps.torchair_layout import GRAPH_TEXT, Run, Side, find_runs, find_side, graph_texts
from firstdrift.dumps.torchair_operators import Operator
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError
from firstdrift.plurals import counted

_LARGEST_TEXT = 256 * 1024 * 1024
_CALLED = {Side.FX: "the FX graph, as torch ran it", Side.GE: "the compiled graph (GE)"}
_NO_TEXT = "no dynamo_original_graph_*.txt: from which FX nodes the operators were made is not known"
_MANY_GRAPHS = 2
_FUSED = "FusionOp"


class TorchairReader:
    """The reader of one form of TorchAir dumps (a `DumpReader`)."""

    format: str
    side: Side

    def recognise(self, path: Path) -> tuple[str, ...]:
        """Return the evidence that a path is, holds or lies in one TorchAir dump of this form."""
        found = find_side(path)
        if found is None or found[0] is not self.side:
            return ()
        where = printable(Path(os.path.realpath(found[1])).name)
        texts = [entry.name for entry, _ in folder_entries(found[1]) if GRAPH_TEXT.fullmatch(entry.name)]
        return (
            f"files of operators of {_CALLED[self.side]} in {where}",
            *(f"{printable(text)}, the text of a graph" for text in texts[:1]),
        )

    def open_dump(self, path: Path) -> Dump:
        """List the tokens of each rank.

        Raises:
            DumpNotRecognisedError: there is no such dump, or more than one.
        """
        found = find_side(path)
        if found is None or found[0] is not self.side:
            raise DumpNotRecognisedError("this is not a TorchAir dump", path=path)
        runs = find_runs(path, self.side)
        slices = _by_slice(runs)
        texts = sorted({text for run in runs for text in graph_texts(run)}) if self.side is Side.GE else []
        problems = [*_doubles(runs, path), *_links(path, runs)]
        if self.side is Side.GE and not texts:
            problems.append(Problem(printable(found[1].name), _NO_TEXT))
        attributes = {
            "framework": "torchair",
            "side": _CALLED[self.side],
            "graphs": ", ".join(printable(name) for name in dict.fromkeys(run.graph for run in runs)),
        }
        if texts:
            attributes["graph texts"] = ", ".join(printable(text.name) for text in texts)
        return Dump(
            path=path,
            format=self.format,
            evidence=self.recognise(path),
            slices=tuple(SliceListing(group[0].coordinates, _common(group)) for group in slices),
            problems=tuple(problems),
            attributes=attributes,
        )

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the operators of a token.

        Raises:
            DumpUnreadableError: the folders of the token are gone.
        """
        runs = find_runs(dump.path, self.side)
        mine = [group for group in _by_slice(runs) if group[0].coordinates == listing.coordinates]
        if not mine:
            raise DumpUnreadableError("the operators of this token are gone", path=listing.directory)
        is_nested = len({run.graph for run in runs}) >= _MANY_GRAPHS
        bounds = Bounds.around(dump.path)
        read = [self._read_run(run, bounds, dump.path) for run in mine[0]]
        nodes: list[Node] = []
        for graph in sorted(read, key=_began):
            nodes += graph.nodes(len(nodes), is_nested=is_nested)
        problems = tuple(problem for graph in read for problem in graph.problems)
        origins = dict.fromkeys(graph.order_origin for graph in read)
        return Slice(listing, tuple(nodes), "; ".join(origins), problems=problems)

    def read_stacks(self, dump: Dump, listing: SliceListing) -> Mapping[str, tuple[str, ...]]:  # noqa: ARG002
        """Return nothing: TorchAir records no call stacks."""
        return {}

    def _read_run(self, run: Run, bounds: Bounds, path: Path) -> "_GraphRun":
        where = _shown(run.folder, path)
        if self.side is Side.FX:
            from firstdrift.dumps.torchair_fx import read_fx

            read = read_fx(run.folder, bounds)
            order = [operator.name for operator in read.operators]
            return _GraphRun(run, read.operators, order, "recorded", _placed(read.notes, where), {})
        from firstdrift.dumps.torchair_ge import read_ge

        read = read_ge(run.folder, bounds)
        names = [operator.name for operator in read.operators]
        graph, notes = _graph_of(run, read.operators)
        order, moved = _in_order(read.operators, graph)
        origin = (
            "recorded"
            if order == names
            else f"recorded, but {counted(moved, 'operator')} moved behind what they take"
        )
        sources = {} if graph is None else _sources(read.operators, graph)
        return _GraphRun(run, read.operators, order, origin, _placed([*read.notes, *notes], where), sources)


class TorchairFxReader(TorchairReader):
    """The reader of dumps of FX graphs."""

    format = "torchair-fx"
    side = Side.FX


class TorchairGeReader(TorchairReader):
    """The reader of dumps of compiled graphs."""

    format = "torchair-ge"
    side = Side.GE


class _GraphRun(Struct, frozen=True):
    """One execution of one graph, read."""

    run: Run
    operators: Sequence[Operator]
    order: Sequence[str]
    order_origin: str
    problems: Sequence[Problem]
    sources: Mapping[str, tuple[Source, ...]]

    def nodes(self, first: int, *, is_nested: bool) -> Iterator[Node]:
        """Make a node of each operator, and of the graph around them if it is one of several."""
        by_name = {operator.name: operator for operator in self.operators}
        around = printable(self.run.graph) if is_nested else None
        for at, name in enumerate(self.order, start=first):
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
                sources=self.sources.get(name, ()),
            )
        if around:
            yield Node(
                name=around,
                path=around,
                kind=NodeKind.MODULE,
                type_name="Graph",
                direction=Direction.FORWARD,
                call=0,
                order=first + len(self.order),
                parent=None,
                tensors=(),
            )


def _began(graph: _GraphRun) -> tuple[int, str]:
    return min((operator.time for operator in graph.operators), default=0), graph.run.graph


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
            said = f"{run.coordinates.describe()} of {printable(run.graph)}"
            reason = f"left out: it is {said}, like {_shown(first.folder, path)}; open it on its own"
            yield Problem(_shown(run.folder, path), reason)


def _links(path: Path, runs: Iterable[Run]) -> Iterator[Problem]:
    bounds = Bounds.around(path)
    around = {folder for run in runs for folder in run.folder.parents if folder.is_relative_to(path)}
    for folder in sorted(around):
        for name, reason in refused_links(folder, bounds):
            yield Problem(_shown(folder / name, path), reason)


def _common(runs: Sequence[Run]) -> Path:
    folders = [run.folder for run in runs]
    if len(folders) == 1:
        return folders[0]
    return next(folder for folder in folders[0].parents if all(one.is_relative_to(folder) for one in folders))


def _shown(path: Path, top: Path) -> str:
    shown = path.relative_to(top) if path.is_relative_to(top) and path != top else Path(path.name)
    return printable(str(shown))


def _placed(notes: Iterable[tuple[str, str]], where: str) -> list[Problem]:
    return [Problem(f"{where}/{file}" if file else where, note) for file, note in notes]


def _in_order(operators: Sequence[Operator], graph: Graph | None) -> tuple[list[str], int]:
    """Order operators by the times in their names, none before what it takes; say how many had to move."""
    names = [operator.name for operator in operators]
    if graph is None:
        return names, 0
    giver = {
        part: operator.name
        for operator in operators
        if operator.is_whole
        for part in graph.parts(operator.name)
    }
    flows = {
        (giver[name], operator.name)
        for operator in operators
        if operator.is_whole
        for part in graph.parts(operator.name)
        for name, _ in graph.operators[part].inputs
        if name in giver and giver[name] != operator.name
    }
    order, _ = finish_order({None: names}, dict.fromkeys(names, OPERATOR), sorted(flows))
    return order, sum(one != other for one, other in zip(names, order, strict=True))


def _sources(operators: Iterable[Operator], graph: Graph) -> dict[str, tuple[Source, ...]]:
    """Say of each operator what it was made from; of one that was dumped twice the larger file counts."""
    found: dict[str, tuple[Source, ...]] = {}
    for operator in operators:
        parts = graph.parts(operator.name) if operator.is_whole else ()
        if parts:
            roles = Counter(record.role.value for record in operator.tensors)
            found[operator.name] = graph.sources(parts, roles["input"], roles["output"])
    return found


def _graph_of(run: Run, operators: Sequence[Operator]) -> tuple[Graph | None, list[tuple[str, str]]]:
    """Choose the text that describes a run: of its rank and number; of several, the one that knows most."""
    candidates: list[tuple[bool, int, str, Graph]] = []
    notes: list[tuple[str, str]] = []
    names = {operator.name for operator in operators}
    for text in graph_texts(run):
        said = GRAPH_TEXT.fullmatch(text.name)
        if said is None or (said["rank"] and run.rank is not None and int(said["rank"]) != run.rank):
            continue
        try:
            graph = _read_graph(text, *_stamp(text))
        except DamagedError as exc:
            notes.append((f"../{printable(text.name)}", str(exc)))
            continue
        is_same = run.graph == f"graph_{int(said['number'])}"
        known = sum(name in graph.operators for name in names)
        candidates.append((is_same, known, text.name, graph))
    known_at_all = [one for one in candidates if one[1]] or candidates
    if not known_at_all:
        return None, notes
    best = max(known_at_all, key=lambda one: one[:3])
    if best[3].problem:
        notes.append((f"../{printable(best[2])}", f"the text of the graph: {best[3].problem}"))
    notes += [
        (operator.name, "the text of the graph does not say of what it was fused")
        for operator in operators
        if _FUSED in operator.type_name and operator.is_whole and not best[3].parts(operator.name)
    ]
    return best[3], notes


def _stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=8)
def _read_graph(file: Path, _time: int, _size: int) -> Graph:
    contents = file_contents(file)
    if len(contents) > _LARGEST_TEXT:
        raise DamagedError(f"the text of the graph is larger than {_LARGEST_TEXT >> 20} MiB and is not read")
    return parse_graph(bytes(contents).decode("utf-8", "replace"))
