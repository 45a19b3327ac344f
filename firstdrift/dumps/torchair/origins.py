"""Say of the operators of a compiled graph from what they were made, by the text of the graph around them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.containers.contents import DamagedError, file_contents
from firstdrift.dumps.execution_order import finish_order
from firstdrift.dumps.nodes import of_role
from firstdrift.dumps.storage.folders import printable
from firstdrift.dumps.torchair.graph import Graph, parse_graph
from firstdrift.dumps.torchair.layout import GRAPH_TEXT, Run, graph_texts
from firstdrift.dumps.torchair.operators import Notes, Operator
from firstdrift.files import said_by_system
from firstdrift.groups import gathered
from firstdrift.model.node import Source
from firstdrift.model.tensor import Role
from firstdrift.operators.order import OPERATOR
from firstdrift.wording.message import Message

_LARGEST_TEXT = 256 * 1024 * 1024
_FUSED = "FusionOp"


class Compiled(Struct, frozen=True):
    """The operators of one execution of a graph, and what the text of the graph says of them.

    Attributes:
        operators: in the order of their times; the type of what was fused names those of its parts.
        notes: what is odd or damaged.
        order: their names, none before what it takes.
        sources: what each was made from, by name.
    """

    operators: Sequence[Operator]
    notes: Notes
    order: Sequence[str]
    sources: Mapping[str, tuple[Source, ...]] = {}

    @property
    def moved(self) -> int:
        """How many operators are not in the order of their times."""
        pairs = zip(self.operators, self.order, strict=True)
        return sum(operator.name != name for operator, name in pairs)


def as_they_ran(operators: Sequence[Operator], notes: Notes) -> Compiled:
    """Take operators in the order of their times."""
    return Compiled(operators, notes, [operator.name for operator in operators])


def with_origins(run: Run, operators: Sequence[Operator], notes: Notes) -> Compiled:
    """Find the text that describes a run, and what it says of its operators.

    Of an operator that was dumped twice the larger file counts.
    """
    graph = _graph_of(run, operators, notes)
    if graph is None:
        return as_they_ran(operators, notes)
    parts = {one.name: graph.parts(one.name) if one.is_whole else () for one in operators}
    notes += _unknown_fusions(operators, parts)
    dumped = set(chain.from_iterable(parts.values()))
    sources = {
        operator.name: graph.sources(parts[operator.name], *_counts(operator), dumped)
        for operator in operators
        if parts[operator.name]
    }
    typed = [_typed(operator, parts[operator.name], graph) for operator in operators]
    return Compiled(typed, notes, _in_order(operators, parts, graph), sources)


def _unknown_fusions(operators: Sequence[Operator], parts: Mapping[str, Sequence[str]]) -> Notes:
    unknown = Message.of("dumps.torchair.unknown_fusion")
    fused = (operator for operator in operators if operator.is_whole and _FUSED in operator.type_name)
    return [(operator.name, unknown) for operator in fused if not parts[operator.name]]


def _counts(operator: Operator) -> tuple[int, int]:
    """Count inputs and outputs."""
    return len(of_role(operator.tensors, Role.INPUT)), len(of_role(operator.tensors, Role.OUTPUT))


def _typed(operator: Operator, parts: Sequence[str], graph: Graph) -> Operator:
    """Name the type of what was fused by those of its parts: "Add+Sigmoid+Mul"."""
    if len(parts) < 2:  # noqa: PLR2004 (what was fused has at least two)
        return operator
    return replace(operator, type_name="+".join(graph.operators[part].type_name for part in parts))


def _in_order(operators: Sequence[Operator], parts: Mapping[str, Sequence[str]], graph: Graph) -> list[str]:
    """Order operators by the times in their names, none before what it takes."""
    names = [operator.name for operator in operators]
    giver = {part: name for name, found in parts.items() for part in found}
    flows = {
        (giver[taken], name)
        for name, found in parts.items()
        for part in found
        for taken, _ in graph.operators[part].inputs
        if taken in giver and giver[taken] != name
    }
    return finish_order({None: names}, dict.fromkeys(names, OPERATOR), sorted(flows))[0]


def _graph_of(run: Run, operators: Sequence[Operator], notes: Notes) -> Graph | None:
    """Choose the text that describes a run: of its rank and number; of several, the one that knows most."""
    names = {operator.name for operator in operators}
    texts = _texts_of(run)
    found = list(_readable(texts[True], names, notes))
    if not any(text.known for text in found):
        found += _readable(texts[False], names, notes)
    best = max(found, key=lambda text: text[:2], default=None)
    if best and best.graph.problem:
        damaged = Message.of("dumps.torchair.graph_damaged", problem=best.graph.problem)
        notes.append((f"../{printable(best.name)}", damaged))
    return best and best.graph


def _texts_of(run: Run) -> Mapping[bool, list[Path]]:
    """Return the texts of the rank of a run: those of its graph (True), and those of others."""
    matches = ((text, GRAPH_TEXT.fullmatch(text.name)) for text in graph_texts(run))
    return gathered(
        (f"graph_{int(match['number'])}" == run.graph, text)
        for text, match in matches
        if match and (not match["rank"] or run.rank in (None, int(match["rank"])))
    )


class _Text(NamedTuple):
    """A text: how many of some operators it knows, its name, and what it says."""

    known: int
    name: str
    graph: Graph


def _readable(texts: Iterable[Path], names: set[str], notes: Notes) -> Iterator[_Text]:
    for text in texts:
        try:
            status = text.stat()
            graph = _read_graph(text, status.st_mtime_ns, status.st_size)
            yield _Text(len(names & graph.operators.keys()), text.name, graph)
        except (DamagedError, OSError) as exc:
            reason = said_by_system(exc) if isinstance(exc, OSError) else exc.message
            useless = Message.of("dumps.torchair.graph_useless", reason=reason)
            notes.append((f"../{printable(text.name)}", useless))


@lru_cache(maxsize=8)
def _read_graph(file: Path, _time: int, _size: int) -> Graph:
    contents = file_contents(file)
    if len(contents) > _LARGEST_TEXT:
        raise DamagedError(Message.of("dumps.torchair.graph.too_large", most=_LARGEST_TEXT >> 20))
    return parse_graph(contents[:].decode("utf-8", "replace"))
