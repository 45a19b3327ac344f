"""What every reader gives, whatever the format on disk.

    Dump ── SliceListing ──read_slice──▶ Slice ── Node ── TensorRecord

Opening a dump finds its slices; reading a slice finds its nodes and tensors from headers and
indexes; only `load_tensor` touches tensor data.
"""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct, field

from firstdrift.tensors import TensorRecord


class NodeKind(StrEnum):
    """What a node of the model tree is."""

    MODEL = "model"
    MODULE = "module"
    API = "api"


class Direction(StrEnum):
    """Which pass a node belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    NONE = "none"


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

    def describe(self) -> str:
        """Say which slice this is: "step 0, rank 1, token 3"; "the only slice" if nothing is known."""
        named = {
            "step": self.step,
            "rank": "+".join(map(str, self.merged)) if self.merged else self.rank,
            "token": self.token,
            "micro step": self.micro_step,
        }
        said = [f"{name} {value}" for name, value in named.items() if value is not None]
        return ", ".join(said) or "the only slice"


class Source(Struct, frozen=True):
    """A node of an earlier form of the graph that a node was made from, as the dump tells.

    Attributes:
        node: its name in that form.
        tensors: which of its tensors they are that both have: label here, label there
            ("output.0", "output.1").
    """

    node: str
    tensors: tuple[tuple[str, str], ...] = ()


class Node(Struct, frozen=True, gc=False):
    """A module or an operator call of one slice.

    Attributes:
        name: as the dump writes it; unique in its slice.
        path: dotted module path without the framework's prefix ("model.layers.7.mlp.down_proj");
            for an operator its own name without call number and direction ("Functional.linear").
        kind: model, module or api.
        type_name: class of the module or name of the operator ("Linear", "Functional.linear").
        direction: forward, backward or none.
        call: which call of this name, from 0.
        order: position in execution order within the slice, from 0: when it *finished*, so that
            children come before the module that contains them.
        parent: name of the module around it; None at the top.
        tensors: its inputs, parameters, outputs and gradients, in the dump's order.
        micro_step: which micro batch of the step it belongs to, where the dump tells.
        sources: what a compiler made it from, where the dump tells; in the order in which they ran.
    """

    name: str
    path: str
    kind: NodeKind
    type_name: str
    direction: Direction
    call: int
    order: int
    parent: str | None
    tensors: tuple[TensorRecord, ...]
    micro_step: int | None = None
    sources: tuple[Source, ...] = ()


class Problem(Struct, frozen=True):
    """Something in a dump that could not be used: which file, and why."""

    file: str
    reason: str


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
    """

    coordinates: Coordinates
    directory: Path
    parts: "tuple[SliceListing, ...]" = ()
    layout: Layout | None = None


class Dump(Struct, frozen=True):
    """A directory that one run wrote.

    Attributes:
        path: as given.
        format: "msprobe", "msprobe-debug", "msit-torch", "msit-atb", "msprobe-atb",
            "msprobe-aclgraph", "torchair-fx", "torchair-ge", "hf-debug-tree", "sglang" or "plain".
        evidence: why it is held to be of that format, one clause each.
        slices: what it holds, in the order of execution.
        problems: what could not be used.
        attributes: what the dump says of itself: "task", "level", "framework", ...
    """

    path: Path
    format: str
    evidence: tuple[str, ...]
    slices: tuple[SliceListing, ...]
    problems: tuple[Problem, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict)


ORDER_FROM_NAMES: Final = "names, numbers in ascending order"
"""How the origin of an execution order ends of which names alone tell."""


class Slice(Struct, frozen=True):
    """One execution of the model: its nodes in execution order.

    Attributes:
        listing: which slice.
        nodes: in execution order (`Node.order` is the index).
        order_origin: how the execution order is known: "recorded", or in words how it was derived.
        problems: what could not be used.
    """

    listing: SliceListing
    nodes: tuple[Node, ...]
    order_origin: str = "recorded"
    problems: tuple[Problem, ...] = ()

    @property
    def coordinates(self) -> Coordinates:
        """Which execution of the model this is."""
        return self.listing.coordinates

    @property
    def tells_order(self) -> bool:
        """False if names alone say when its nodes ran."""
        return not self.order_origin.endswith(ORDER_FROM_NAMES)


class DumpReader(Protocol):
    """What a module in `firstdrift.dumps` offers for its format."""

    def recognise(self, path: Path) -> tuple[str, ...]:
        """Return the evidence that a path is of this format; empty if it is not."""

    def open_dump(self, path: Path) -> Dump:
        """List the slices of a dump.

        Raises:
            DumpUnreadableError: a file that all else hangs on is damaged.
        """

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the nodes and tensors of a slice, without tensor data.

        Raises:
            DumpUnreadableError: a file that all else hangs on is damaged.
        """

    def read_stacks(self, dump: Dump, listing: SliceListing) -> Mapping[str, tuple[str, ...]]:
        """Return the Python call stack of each node name, innermost frame first; {} if none."""
