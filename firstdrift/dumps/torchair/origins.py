"""Say of the operators of a compiled graph from what they were made, by the text of the graph around them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.containers.contents import DamagedError, file_contents
from firstdrift.dumps.execution_order import finish_order
from firstdrift.dumps.storage.folders import printable
from firstdrift.dumps.torchair.graph import Graph, parse_graph
from firstdrift.dumps.torchair.layout import GRAPH_TEXT, Run, graph_texts
from firstdrift.dumps.torchair.operator import Notes, Operator
from firstdrift.files import said_by_system
from firstdrift.model.node import Source
from firstdrift.operators.order import OPERATOR
from firstdrift.wording.message import Message

_LARGEST_TEXT = 256 * 1024 * 1024
_FUSED = "FusionOp"


class Compiled(Struct, frozen=True):
    """The operators of one execution of a compiled graph, and what its text says of them.

    Attributes:
        operators: in the order of their times; the type of what was fused names those of its parts.
        order: their names, none before what it takes.
        sources: what each was made from, by name.
        notes: what is wrong with the text.
    """

    operators: Sequence[Operator]
    order: Sequence[str]
    sources: Mapping[str, tuple[Source, ...]]
    notes: Notes


def with_origins(run: Run, operators: Sequence[Operator]) -> Compiled:
    """Find the text that describes a run, and what it says of its operators.

    Of an operator that was dumped twice the larger file counts.
    """
    notes: Notes = []
    graph = _graph_of(run, operators, notes)
    if graph is None:
        return Compiled(operators, [operator.name for operator in operators], {}, notes)
    parts = {operator.name: _parts(operator, graph) for operator in operators}
    whole = [operator for operator in operators if operator.is_whole]
    unknown = Message.of("dumps.torchair.unknown_fusion")
    notes += [(fused.name, unknown) for fused in whole if _FUSED in fused.type_name and not parts[fused.name]]
    dumped = set(chain.from_iterable(parts.values()))
    sources = {
        operator.name: graph.sources(parts[operator.name], *_counts(operator), dumped)
        for operator in whole
        if parts[operator.name]
    }
    typed = [_typed(operator, parts[operator.name], graph) for operator in operators]
    return Compiled(typed, _in_order(operators, parts, graph), sources, notes)


def _parts(operator: Operator, graph: Graph) -> tuple[str, ...]:
    return graph.parts(operator.name) if operator.is_whole else ()


def _counts(operator: Operator) -> tuple[int, int]:
    """Count inputs and outputs."""
    roles = Counter(record.role.value for record in operator.tensors)
    return roles["input"], roles["output"]


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
    graphs: list[tuple[int, str, Graph]] = []
    for texts in _texts_of(run):
        readable = ((text.name, _readable(text, notes)) for text in texts)
        graphs += [
            (sum(map(graph.operators.__contains__, names)), name, graph) for name, graph in readable if graph
        ]
        if any(known for known, _, _ in graphs):
            break
    if not graphs:
        return None
    _, name, graph = max(graphs, key=lambda candidate: candidate[:2])
    if graph.problem:
        damaged = Message.of("dumps.torchair.graph_damaged", problem=graph.problem)
        notes.append((f"../{printable(name)}", damaged))
    return graph


def _texts_of(run: Run) -> tuple[list[Path], list[Path]]:
    """Return the texts of the rank of a run: those of its graph, and those of others."""
    own: list[Path] = []
    others: list[Path] = []
    for text in graph_texts(run):
        match = GRAPH_TEXT.fullmatch(text.name)
        if match and (not match["rank"] or run.rank in (None, int(match["rank"]))):
            (own if f"graph_{int(match['number'])}" == run.graph else others).append(text)
    return own, others


def _readable(text: Path, notes: Notes) -> Graph | None:
    try:
        status = text.stat()
        return _read_graph(text, status.st_mtime_ns, status.st_size)
    except (DamagedError, OSError) as exc:
        reason = said_by_system(exc) if isinstance(exc, OSError) else exc.message
        useless = Message.of("dumps.torchair.graph_useless", reason=reason)
        notes.append((f"../{printable(text.name)}", useless))
        return None


@lru_cache(maxsize=8)
def _read_graph(file: Path, _time: int, _size: int) -> Graph:
    contents = file_contents(file)
    if len(contents) > _LARGEST_TEXT:
        raise DamagedError(Message.of("dumps.torchair.graph.too_large", most=_LARGEST_TEXT >> 20))
    return parse_graph(contents[:].decode("utf-8", "replace"))
