"""Read ATB dumps, whichever tool laid them out: one slice for each token of each process.

    tensors/0_4242/3/20_Decoder_layer/after/outtensor0.bin   →   output.0 of Decoder_layer.2, token 3

Which operations there are is taken from the topology beside the tensors, from the folders, and from the
table of statistics; which token a folder is, from the numbers of the operations in it (`atb.tokens`).
"""

import os
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, starmap
from pathlib import Path
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.dumps.atb.process import (
    STATISTICS_FILE,
    AtbLayout,
    AtbProcess,
    Operation,
    Topology,
    find_processes,
    make_nodes,
    operation_folders,
    process_at,
    read_topology,
)
from firstdrift.dumps.atb.run import RunFolder, RunStatistics, RunTensors, read_statistics, scan_run
from firstdrift.dumps.atb.tokens import Phase, Run, TokenTable, assign_tokens
from firstdrift.dumps.reader import DumpReader, Part
from firstdrift.dumps.storage.folders import (
    files_ending,
    first_names,
    folder_entries,
    passed_over,
    sub_folders,
    written_at,
)
from firstdrift.errors import DumpUnreadableError
from firstdrift.model.slice import Coordinates, Dump, Problem, Slice, SliceListing
from firstdrift.wording.message import Message, joined

_DEVICE = re.compile(r"[0-9]+_[0-9]+", re.ASCII)
_MOST_NAMES = 200


class _Facts(Struct, frozen=True):
    """What is known of a process as a whole."""

    topology: Topology
    decode_start: int | None
    tokens: TokenTable

    @property
    def models(self) -> Message:
        """The names of its models."""
        names = tuple(self.topology.models)
        return Message.of("dumps.atb.models", models=names) if names else Message.of("dumps.atb.no_models")


class AtbReader(DumpReader):
    """The `DumpReader` of ATB dumps of one layout."""

    layout: ClassVar[AtbLayout]

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is, holds or lies in one ATB dump of this layout."""
        processes = find_processes(path, self.layout)
        if not processes:
            return ()
        folders = sum(len(process.runs) for process in processes)
        topologies = sum(len(files_ending(process.models, ".json")) for process in processes)
        return (
            Message.of("dumps.atb.operation_folders", folders=_names(processes)),
            Message.of("dumps.atb.run_folders", count=folders),
            Message.of("dumps.atb.topologies", count=topologies),
        )

    def open_dump(self, path: Path) -> Dump:
        """List the tokens of each process."""
        processes = find_processes(path, self.layout)
        if not processes:
            raise self.none_at(path)
        known = [(process, _facts_of(process, self.layout)) for process in processes]
        real = Path(os.path.realpath(path))
        is_named = real in processes[0].runs
        listings = [
            SliceListing(Coordinates(rank=process.rank, token=run.token), folder)
            for process, facts in known
            for run, folder in _runs(process, facts.tokens)
            if (folder == real if is_named else not run.is_warm_up)
        ]
        attributes: dict[str, str | Message] = {
            "framework": "atb",
            "devices": _names(processes),
            "models": _once(processes, [facts.models for _, facts in known]),
            "tokens": _once(processes, [facts.tokens.reason for _, facts in known]),
        }
        return self.dump(path, listings, chain.from_iterable(starmap(_problems_of, known)), attributes)

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:  # noqa: ARG002 (the readers' common form)
        """Read the nodes and tensors of a token."""
        process = process_at(listing.directory.parent, self.layout)
        facts = _facts_of(process, self.layout)
        mine = [
            run
            for run, folder in _runs(process, facts.tokens)
            if folder == listing.directory and run.token == listing.coordinates.token
        ]
        if not mine:
            raise DumpUnreadableError(Message.of("dumps.token_gone"), path=listing.directory)
        return _read_run(listing, mine[0], facts, process)


def _part(path: str) -> Part:
    """Return how folders inside an ATB dump are told, by a pattern that is found in their paths."""
    return Part(re.compile(path), Message.of("dumps.atb.part"), Message.of("dumps.atb.choose_whole"))


class MsitAtbReader(AtbReader):
    """The `DumpReader` of the ATB dumps of msit, formerly ait."""

    format = "msit-atb"
    title = Message.of("dumps.atb.msit_title")
    marks = ("tensors",)
    part = _part(r"/tensors/[0-9]+_[0-9]+(?:/|$)")
    layout = AtbLayout(holder=("tensors",), models="model/{pid}", layers="layer/{pid}")

    def is_marked(self, folder: Path) -> bool:
        """Tell whether folders of processes lie below a folder."""
        (holder,) = self.marks
        return any(_DEVICE.fullmatch(device.name) for device in sub_folders(folder / holder, _MOST_NAMES))


class MsprobeAtbReader(AtbReader):
    """The `DumpReader` of the ATB dumps of msprobe."""

    format = "msprobe-atb"
    title = Message.of("dumps.atb.msprobe_title")
    marks = ("atb_dump_data",)
    part = _part(r"/atb_dump_data(?:/|$)")
    layout = AtbLayout(
        holder=("atb_dump_data", "data"), models="info/model/{process}", layers="info/layer/{process}"
    )


def _names(processes: Sequence[AtbProcess]) -> str:
    return ", ".join(process.folder.name for process in processes)


def _once(processes: Sequence[AtbProcess], said: Sequence[Message]) -> Message:
    """Say once what holds for all processes."""
    if len(set(said)) == 1:
        return said[0]
    return joined(
        *(
            Message.of("dumps.atb.of_process", process=process.folder.name, value=value)
            for process, value in zip(processes, said, strict=True)
        )
    )


def _runs(process: AtbProcess, tokens: TokenTable) -> list[tuple[Run, Path]]:
    return [(run, process.folder / str(run.folder)) for run in tokens.runs]


def _problems_of(process: AtbProcess, facts: _Facts) -> Iterator[Problem]:
    where = process.folder.name
    yield from facts.topology.problems
    if facts.tokens.problem is not None:
        yield Problem(where, facts.tokens.problem)
    known = {run.folder for run in facts.tokens.runs}
    if empty := [folder.name for folder in process.runs if int(folder.name) not in known]:
        yield Problem(where, Message.of("dumps.atb.empty_folders", folders=first_names(empty)))
    unknown = [entry.name for entry, _ in folder_entries(process.folder) if entry not in process.runs]
    yield from passed_over(where, unknown)


def _facts_of(process: AtbProcess, layout: AtbLayout) -> _Facts:
    """Return what is known of a process, read anew if its files changed."""
    topologies = files_ending(process.models, ".json")
    watched = (process.folder, process.models, process.layers, *topologies, *process.runs)
    return _facts(process.folder, layout, tuple(map(written_at, watched)))


@lru_cache(maxsize=8)
def _facts(folder: Path, layout: AtbLayout, _stamps: tuple[int, ...]) -> _Facts:
    process = process_at(folder, layout)
    topology = read_topology(process)
    orders = {int(run.name): _orders(run) for run in process.runs}
    decode_start, problem = _decode_start(topology, orders)
    tokens = assign_tokens(orders, decode_start)
    return _Facts(topology, decode_start, replace(tokens, problem=tokens.problem or problem))


def _orders(run: Path) -> frozenset[int]:
    """Return the running numbers of the operations at the top level of a run."""
    table = run / STATISTICS_FILE
    found = {int(folder.name.partition("_")[0]) for folder in operation_folders(run)}
    if not found and table.is_file() and not table.is_symlink():
        found = {orders[0] for orders in read_statistics(table).rows}
    return frozenset(found)


def _decode_start(
    topology: Topology, orders: Mapping[int, Collection[int]]
) -> tuple[int | None, Message | None]:
    """Return the first running number of the model that decodes, and what is doubtful about it."""
    starts = topology.starts
    if len(starts) == 2:  # noqa: PLR2004 (prefill and decode)
        return starts[1], None
    if len(starts) > 2:  # noqa: PLR2004
        return None, Message.of("dumps.atb.not_two_models", models=len(starts))
    described = {operation.orders[0] for operation in topology.operations.values()}
    if starts and described.issuperset(chain.from_iterable(orders.values())):
        return None, None
    first = [min(orders[folder]) for folder in sorted(orders) if orders[folder]]
    if first and first[-1] > min(first):
        return first[-1], Message.of("dumps.atb.decode_assumed", operation=first[-1])
    return None, Message.of("dumps.atb.no_phases")


def _read_run(listing: SliceListing, run: Run, facts: _Facts, process: AtbProcess) -> Slice:
    contents = scan_run(listing.directory, process.bounds)
    statistics = read_statistics(contents.statistics) if contents.statistics else RunStatistics({}, {})
    where = f"{process.folder.name}/{listing.directory.name}"
    operations, unexpected = _operations(run, facts, contents, statistics)
    tensors = RunTensors(contents, statistics)
    nodes = make_nodes(
        operations, {name: tensors.describe(operation) for name, operation in operations.items()}
    )
    problems = [Problem(f"{where}/{file}", note) for file, note in tensors.notes]
    problems += [Problem(f"{where}/{STATISTICS_FILE}", note) for note in statistics.notes]
    if unexpected:
        names = first_names(unexpected)
        reason = Message.of("dumps.atb.not_in_topology", count=len(unexpected), operations=names)
        problems.append(Problem(where, reason))
    problems += passed_over(where, contents.unknown)
    return Slice(listing, nodes, problems=tuple(problems))


def _operations(
    run: Run, facts: _Facts, contents: RunFolder, statistics: RunStatistics
) -> tuple[dict[str, Operation], list[str]]:
    """Return the operations of a run by name, and the names of those that the topology lacks."""
    folders = {name: folder.operation for name, folder in contents.folders.items()}
    dumped = statistics.operations | folders
    models = {_model_of(operation, facts) for operation in dumped.values()}
    known = _of_run(facts.topology.operations, run, facts)
    described = {name: known[name] for name in known if _model_of(known[name], facts) in models}
    unexpected = {
        name: replace(operation, is_graph=_is_graph(operation, contents))
        for name, operation in _of_run(dumped, run, facts).items()
        if name not in described
    }
    return described | unexpected, list(unexpected) if described else []


def _model_of(operation: Operation, facts: _Facts) -> int:
    return bisect_right(facts.topology.starts, operation.orders[0])


def _of_run(operations: Mapping[str, Operation], run: Run, facts: _Facts) -> Mapping[str, Operation]:
    """Return those of some operations that are of the phase of a run, as far as that is known."""
    start = facts.decode_start
    if run.phase is Phase.ALL or start is None:
        return operations
    is_prefill = run.phase is Phase.PREFILL
    return {name: one for name, one in operations.items() if (one.orders[0] < start) is is_prefill}


def _is_graph(operation: Operation, contents: RunFolder) -> bool:
    """Tell whether an operation that no topology describes consists of others, dumped or not."""
    folder = contents.folders.get(operation.name)
    has_parameters = folder and folder.parameters
    return operation.is_graph or not (operation.type_name.endswith("Operation") or has_parameters)
