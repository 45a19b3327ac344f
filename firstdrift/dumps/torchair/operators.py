"""Read the operators in the folder of one execution of a graph, whichever form of the graph it is of.

FX: a `.npy` file for each input and output of each node.

    add_1-aten.add.Tensor.INPUT.0.20250101000000000002.npy
    └ node, and its operator with the overload

GE: a file for each operator, with all its inputs and outputs.

    MatMulV2.MatMul.2.7.1734070081497001
    └ type   └ name │ └ stream └ time in microseconds
                    └ task

A name too long for the file system is replaced by a number; `mapping.csv` beside it says by which. From what
the operators of a compiled graph were made is said by the text of the graph around them.
"""

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.containers.contents import DamagedError, TensorHeader, file_contents
from firstdrift.dumps.containers.ge_dump import GeTensor, describe
from firstdrift.dumps.execution_order import finish_order
from firstdrift.dumps.nodes import counted, distinct, numbered, of_role
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import (
    Listed,
    list_named,
    passed_over,
    printable,
    problem_of_file,
)
from firstdrift.dumps.storage.tensor_data import NO_TENSOR, no_header, record_of, records_of_file
from firstdrift.dumps.torchair.graph import Graph, parse_graph
from firstdrift.dumps.torchair.layout import FX_FILE, GE_FILE, GRAPH_TEXT, Run, graph_texts
from firstdrift.files import said_by_system
from firstdrift.groups import gathered
from firstdrift.model.node import Source
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.operators.paths import OPERATOR
from firstdrift.wording.message import Message, joined, verbatim

Notes = list[tuple[str, Message]]
"""Files of which something is odd or damaged, and what; "" for the folder itself."""

_NUMBERED = re.compile(r"(?P<stem>.*[^0-9_])_(?P<number>0|[1-9][0-9]{0,8})", re.ASCII | re.DOTALL)
_NOT_IN_FILE_NAMES = re.compile(r"[./\\\s]")
_MAPPING = "mapping.csv"
_LARGEST_MAPPING = 64 * 1024 * 1024


class Operator(Struct, frozen=True):
    """One execution of an operator.

    Attributes:
        name: as the dump names it; unique in its graph.
        path: its name without the number at its end ("Add_1" is a call of "Add"), or its operator.
        call: that number.
        type_name: which operator it is: "aten.mm", "MatMulV2".
        time: when it ran, as the dump counts.
        tensors: inputs, then outputs.
        is_whole: whether its name stands for it alone; False for a further file of the same name.
    """

    name: str
    path: str
    call: int
    type_name: str
    time: tuple[int, ...]
    tensors: tuple[TensorRecord, ...]
    is_whole: bool = True


class _Saved(NamedTuple):
    """A file of the FX graph and what its name says; inputs come before outputs."""

    role: Role
    number: int
    time: int
    file: Listed


_Files = list[tuple[Listed, re.Match[str]]]


def read_fx(folder: Path, bounds: Bounds) -> tuple[list[Operator], Notes]:
    """Read the headers of all files of a folder; operators come in the order of their times."""
    named, unknown = list_named(folder, bounds, FX_FILE.fullmatch)
    notes: Notes = [("", problem.reason) for problem in passed_over("", unknown)]
    by_node = gathered((printable(match["node"]), (file, match)) for file, match in named)
    return _in_order([_fx_operator(name, files, notes) for name, files in by_node.items()]), notes


def _fx_operator(name: str, files: _Files, notes: Notes) -> Operator:
    saved = sorted(
        (
            _Saved(Role(match["role"].lower()), int(match["index"]), int(match["time"]), file)
            for file, match in files
        ),
        key=lambda one: one[:3],
    )
    records: list[TensorRecord] = []
    for (role, number, _, file), occurrence in counted(saved, lambda one: one[:2]):
        if occurrence:
            twice = Message.of("dumps.file.tensor_twice", tensor=f"{role}.{number}", node=name)
            notes.append((printable(file.path.name), twice))
        key = numbered(str(number), occurrence)
        records += records_of_file(file.path, "npy", role, key, file.refusal)
    node, _, target = name.partition("-")
    base = target.rpartition(".")[0] if target.count(".") > 1 else target
    time = min(one.time for one in saved)
    return Operator(name, target or name, _split_number(node)[1], base or name, (time,), tuple(records))


def read_ge(folder: Path, bounds: Bounds) -> tuple[list[Operator], Notes]:
    """Read the headers of all files of a folder; operators come in the order of their times.

    Of several files of one operator, the largest is the operator; the others are listed beside it.
    """
    notes: Notes = []
    long_names = _long_names(folder / _MAPPING, bounds, notes)
    named, unknown = list_named(folder, bounds, lambda name: GE_FILE.fullmatch(long_names.get(name, name)))
    left = [name for name in unknown if name != _MAPPING]
    notes += [("", problem.reason) for problem in passed_over("", left)]
    by_name = gathered((printable(match["name"]), (file, match)) for file, match in named)
    operators = [
        operator for name, files in by_name.items() for operator in _ge_operators(name, files, notes)
    ]
    return list(_with_distinct_names(_in_order(operators), notes)), notes


def _ge_operators(name: str, files: _Files, notes: Notes) -> Iterator[Operator]:
    by_size = sorted(files, key=lambda saved: (-saved[0].size, _time(saved[1]), saved[0].path))
    for number, (file, match) in enumerate(by_size):
        if number:
            notes.append((printable(file.path.name), Message.of("dumps.torchair.file_twice", name=name)))
        in_header, tensors = _read(file, notes)
        own = in_header if _in_file_names(in_header) == _in_file_names(name) else name
        type_name, time = printable(match["type"]), _time(match)
        yield Operator(
            numbered(own, number), *_split_number(own), type_name, time, tensors, is_whole=not number
        )


def _time(match: re.Match[str]) -> tuple[int, int]:
    return int(match["time"]), int(match["task"])


def _in_order(operators: list[Operator]) -> list[Operator]:
    return sorted(operators, key=lambda operator: (operator.time, operator.name))


def _split_number(name: str) -> tuple[str, int]:
    """Take the number off the end of a name: "Add_1" is ("Add", 1), "MatMul" is ("MatMul", 0)."""
    found = _NUMBERED.fullmatch(name)
    return (found["stem"], int(found["number"])) if found else (name, 0)


def _with_distinct_names(operators: list[Operator], notes: Notes) -> Iterator[Operator]:
    """Tell operators apart whose headers give one name, though their files have several."""
    taken: set[str] = set()
    for operator in operators:
        name = distinct(operator.name, taken)
        if name == operator.name:
            yield operator
        else:
            notes.append(("", Message.of("dumps.torchair.name_twice", name=operator.name)))
            yield replace(operator, name=name, is_whole=False)


def _in_file_names(name: str) -> str:
    """Return a name as files have it, which cannot hold all that it may be made of."""
    return _NOT_IN_FILE_NAMES.sub("_", name)


def _read(file: Listed, notes: Notes) -> tuple[str, tuple[TensorRecord, ...]]:
    """Return the name that the header of a file gives, and its tensors."""
    path = file.path
    if file.refusal:
        header = no_header(file.refusal, is_refused=True)
        return "", (record_of(header, path, "ge", Role.OUTPUT, "0"),)
    try:
        described = describe(file_contents(path))
    except DamagedError as exc:
        header = TensorHeader("output.0", "", None, problem=exc.message)
        return "", (record_of(header, path, "ge", Role.OUTPUT, "0"),)
    if not described.tensors:
        notes.append((printable(path.name), NO_TENSOR))
    return described.name, tuple(_record(tensor, path) for tensor in described.tensors)


def _record(tensor: GeTensor, file: Path) -> TensorRecord:
    problem = tensor.problem and problem_of_file(tensor.entry, tensor.problem)
    return record_of(replace(tensor.header, problem=problem), file, "ge", tensor.role, str(tensor.index))


def _long_names(file: Path, bounds: Bounds, notes: Notes) -> dict[str, str]:
    """Return the names that were too long for files, by what stands for them."""
    if not os.path.lexists(file) or bounds.refusal(file):
        return {}
    try:
        contents = file_contents(file)
        if len(contents) > _LARGEST_MAPPING:
            raise DamagedError(Message.of("dumps.torchair.mapping_too_large"))  # noqa: TRY301
        rows = csv.reader(io.StringIO(contents[:].decode("utf-8", "backslashreplace"), newline=""))
        return {row[0].strip(): row[1].strip() for row in rows if len(row) > 1}
    except (DamagedError, csv.Error) as exc:
        damage = exc.message if isinstance(exc, DamagedError) else verbatim(str(exc))
        notes.append((_MAPPING, joined(damage, Message.of("dumps.torchair.names_unknown"))))
        return {}


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
    return Compiled(typed, notes, _none_before_its_inputs(operators, parts, graph), sources)


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


def _none_before_its_inputs(
    operators: Sequence[Operator], parts: Mapping[str, Sequence[str]], graph: Graph
) -> list[str]:
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
