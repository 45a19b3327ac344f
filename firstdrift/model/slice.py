"""A dump and its slices: one slice is one execution of the model.

Dump ── SliceListing ──read_slice──▶ Slice ── Node ── TensorRecord
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Final

from msgspec import Struct, field

from firstdrift.model.node import Node
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import ranks_named, side_named

_LISTED: Final = 5


class Coordinates(Struct, frozen=True):
    """Which execution of the model a slice is; a coordinate that a format lacks is None.

    A slice that was merged from those of several ranks has `merged` ranks, and no `rank` of its own.
    """

    step: int | None = None
    rank: int | None = None
    token: int | None = None
    micro_step: int | None = None
    merged: tuple[int, ...] | None = None

    def sort_key(self) -> tuple[int, ...]:
        """Order slices as they ran: by step, token and micro step, then by rank; None first."""
        rank = min(self.merged) if self.merged else self.rank
        parts = (self.step, self.token, self.micro_step, rank)
        return tuple(-1 if part is None else part for part in parts)

    def known(self) -> dict[str, int | str]:
        """Give the coordinates that are known, by the messages that name them."""
        parts = {
            "slice.step": self.step,
            "slice.rank": ranks_named(self.merged) if self.merged else self.rank,
            "slice.token": self.token,
            "slice.micro_step": self.micro_step,
        }
        return {id_: number for id_, number in parts.items() if number is not None}

    def name(self) -> Message:
        """Name this slice in a message: "step 0, rank 1, token 3", or "the only slice"."""
        parts = tuple(Message.of(id_, number=number) for id_, number in self.known().items())
        return Message.of("slice.coordinates", parts=parts) if parts else Message.of("slice.only")


def only_on_one_side(golden: Sequence[Coordinates], target: Sequence[Coordinates]) -> tuple[Message, ...]:
    """Say which slices one dump alone has: "tokens 4 and 5 exist only in golden"."""
    return tuple(
        _only_in(side_named(side), left) for side, left in (("golden", golden), ("target", target)) if left
    )


def _only_in(side: Message, left: Sequence[Coordinates]) -> Message:
    kinds = {tuple(one.known()) for one in left}
    only_kind = next(iter(kinds)) if len(kinds) == 1 else ()
    kind = only_kind[0].removeprefix("slice.") if len(only_kind) == 1 else "slices"
    listed: list[int | str | Message] = [
        one.name() if kind == "slices" else one.known()[only_kind[0]] for one in left[:_LISTED]
    ]
    more = "_more" if len(left) > _LISTED else ""
    return Message.of(f"only_in.{kind}{more}", side=side, listed=tuple(listed), count=len(left))


class Problem(Struct, frozen=True):
    """Something in a dump that could not be used: which file, and why."""

    file: str
    reason: Message


class Layout(Struct, frozen=True):
    """Over how many ranks a model was spread; tensor-parallel ranks are numbered first.

    Attributes:
        tensor: ranks that share each layer.
        pipeline: stages that the layers are dealt out to.
        virtual: chunks of layers that each stage has.
    """

    tensor: int = 1
    pipeline: int = 1
    virtual: int = 1


class SliceListing(Struct, frozen=True):
    """A slice that a dump is known to hold, before it is read.

    Attributes:
        coordinates: which slice.
        directory: where it lies; of a merged slice, where that of its first rank lies.
        parts: the slices of the ranks that it is merged from; empty if nothing is known but what one rank
            has. If the coordinates name a rank all the same, only what that one has is compared: the others
            tell whether it is a copy, a part or an addend of what the whole model has.
        layout: how the model was spread over them, where that was said.
        rows: the shapes of the token ids of the parts, where these are no ranks: passes of one process, whose
            tokens are laid one after the other. Empty of ranks.
    """

    coordinates: Coordinates
    directory: Path
    parts: "tuple[SliceListing, ...]" = ()
    layout: Layout | None = None
    rows: tuple[tuple[int, ...], ...] = ()


class Unfinished(Struct, frozen=True):
    """A slice that is still being written.

    Attributes:
        listing: which slice.
        reason: what shows it.
    """

    listing: SliceListing
    reason: Message

    def said(self, side: Message) -> Message:
        """Say that the slice of a side is not compared yet, and why."""
        return Message.of(
            "growth.not_compared", slice=self.listing.coordinates.name(), side=side, reason=self.reason
        )


class Dump(Struct, frozen=True):
    """A directory that one run wrote.

    Attributes:
        path: as given.
        format: name of its reader: "msprobe", "msit-torch", "plain", ... (`dumps/detect.py` has all).
        evidence: why it is held to be of that format.
        slices: what it holds, in the order of execution.
        problems: what could not be used.
        attributes: what the dump says of itself: "task", "level", "framework", ...
        begun: folders of slices that hold nothing yet by which a slice could be read.
        unfinished: slices that are still being written, which are not among the others.
    """

    path: Path
    format: str
    evidence: tuple[Message, ...]
    slices: tuple[SliceListing, ...]
    problems: tuple[Problem, ...] = ()
    attributes: Mapping[str, str | Message] = field(default_factory=dict)
    begun: tuple[SliceListing, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()


class OrderSource(StrEnum):
    """What tells in which order the nodes of a slice ran."""

    RECORDED = "recorded"
    DERIVED = "derived"
    NAMES = "names"


class OrderOrigin(Struct, frozen=True):
    """How the execution order of a slice is known.

    Attributes:
        source: whether the tool recorded it, whether it was derived from the structure of the model, from
            times or from equal values, or whether names are all there is beside equal values.
        message: the same in words, with what was derived from what.
    """

    source: OrderSource
    message: Message


RECORDED_ORDER: Final = OrderOrigin(OrderSource.RECORDED, Message.of("dumps.order.recorded"))


class Slice(Struct, frozen=True):
    """One execution of the model: its nodes in execution order.

    Attributes:
        listing: which slice.
        nodes: in execution order (`Node.order` is the index).
        order_origin: how the execution order is known.
        problems: what could not be used.
    """

    listing: SliceListing
    nodes: tuple[Node, ...]
    order_origin: OrderOrigin = RECORDED_ORDER
    problems: tuple[Problem, ...] = ()

    @property
    def coordinates(self) -> Coordinates:
        """Which execution of the model this is."""
        return self.listing.coordinates

    @property
    def tells_order(self) -> bool:
        """False if names alone say when its nodes ran."""
        return self.order_origin.source is not OrderSource.NAMES
