"""What a dump is, slice by slice, without a partner."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from msgspec import Struct

from firstdrift.dumps.detect import open_dump
from firstdrift.dumps.growth import settled
from firstdrift.errors import DumpUnreadableError
from firstdrift.model.node import NodeKind
from firstdrift.model.slice import Coordinates, Dump, OrderOrigin, Problem, Slice
from firstdrift.model.tensor import TensorRecord
from firstdrift.operators.unknown import UnknownName, added_up, unknown_names
from firstdrift.parallel.slices import read_slice
from firstdrift.remote.addresses import name_of


class SliceInspection(Struct, frozen=True):
    """One slice in numbers.

    Attributes:
        tensors: number of tensors, Python arguments included; `with_data`, `with_statistics` and
            `with_digest` of these.
        unreadable: number of tensors that cannot be compared, each with a reason.
        order_origin: how the execution order is known.
        unknown: names of operators and modules that the registry does not know.
        problems: what could not be used.
    """

    coordinates: Coordinates
    modules: int
    operators: int
    tensors: int
    with_data: int
    with_statistics: int
    with_digest: int
    unreadable: int
    order_origin: OrderOrigin
    unknown: tuple[UnknownName, ...]
    problems: tuple[Problem, ...]


class Inspection(Struct, frozen=True):
    """A dump and its slices in numbers.

    Attributes:
        dump: what was opened.
        slices: those that can be read.
        damaged: which slices cannot be read at all, each with the file and the place in it.
    """

    dump: Dump
    slices: tuple[SliceInspection, ...]
    damaged: tuple[tuple[Coordinates, Problem], ...] = ()

    @property
    def is_whole(self) -> bool:
        """True if every slice and every tensor can be read."""
        return not self.damaged and not any(one.unreadable for one in self.slices)

    @property
    def unknown(self) -> tuple[UnknownName, ...]:
        """Names of operators and modules of all slices that the registry does not know."""
        return added_up(one.unknown for one in self.slices)


def inspect_dump(path: Path) -> Inspection:
    """Read the headers of a dump.

    Raises:
        DumpError: the dump as a whole, or every slice of it, cannot be used.
    """
    dump = settled(open_dump(path))
    slices: list[SliceInspection] = []
    errors: list[DumpUnreadableError] = []
    damaged: list[tuple[Coordinates, Problem]] = []
    for listing in dump.slices:
        try:
            slices.append(_inspect(read_slice(dump, listing)))
        except DumpUnreadableError as error:
            errors.append(error)
            problem = Problem(name_of(error.path or listing.directory), error.message)
            damaged.append((listing.coordinates, problem))
    if errors and not slices:
        raise errors[0]
    return Inspection(dump, tuple(slices), tuple(damaged))


def _inspect(read: Slice) -> SliceInspection:
    records = list(chain.from_iterable(node.tensors for node in read.nodes))
    tensors = [record for record in records if record.is_tensor]
    problems = list(_problems(tensors))
    operators = sum(node.kind is NodeKind.API for node in read.nodes)
    return SliceInspection(
        coordinates=read.coordinates,
        modules=len(read.nodes) - operators,
        operators=operators,
        tensors=len(records),
        with_data=sum(record.location is not None and record.problem is None for record in tensors),
        with_statistics=sum(record.statistics is not None for record in tensors),
        with_digest=sum(record.digest is not None for record in tensors),
        unreadable=len(problems),
        order_origin=read.order_origin,
        unknown=unknown_names(read.nodes),
        problems=(*read.problems, *problems),
    )


def _problems(tensors: Iterable[TensorRecord]) -> Iterator[Problem]:
    for record in tensors:
        if record.problem is not None:
            yield Problem(str(record.location.file) if record.location else record.label, record.problem)
