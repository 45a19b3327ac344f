"""A node of the model tree: a module, or a call of an operator."""

from enum import StrEnum

from msgspec import Struct

from firstdrift.model.tensor import Role, TensorRecord


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


MODEL, MODULE, API = NodeKind
FORWARD, BACKWARD, NO_PASS = Direction
"""By themselves, for what is asked of every node: Python 3.11 looks up slowly what an enum holds."""


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

    def records(self, role: Role) -> list[TensorRecord]:
        """Return its tensors and other arguments of a role, in order."""
        return [record for record in self.tensors if record.role is role]
