"""What people said corresponds to what, node by node: edits laid over the matches that were found.

    match    mlp.forward.0          = feed_forward.forward.0      and what is inside
    match    q_proj, k_proj, v_proj = linear_qkv                  fused
    unmatch  norm.forward.0         = norm_2.forward.0

Edits are applied in order, each to what the ones before it left. Nodes go by their names, so that an edit
holds for every slice that has them.
"""

from collections.abc import Container, Iterable
from enum import StrEnum
from typing import Final

from msgspec import Struct

from firstdrift.errors import SettingsError
from firstdrift.matching.manual.mapping import MappingFile
from firstdrift.matching.manual.thresholds import MOST_SHOWN
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import side_named

_REFUSED: Final = "matching.edit.refused"


class EditKind(StrEnum):
    """What an edit does."""

    MATCH = "match"
    UNMATCH = "unmatch"


class Edit(Struct, frozen=True):
    """One decision of a person.

    Attributes:
        kind: whether nodes are matched or their matches taken apart.
        golden: names of golden nodes; several where they were fused, in the order in which they are joined.
        target: names of target nodes; one of the two sides of a match has one node. To take a match apart,
            some of its nodes on either side are enough.
        descendants: whether what is inside the nodes is matched, or taken apart, as well.
    """

    kind: EditKind
    golden: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    descendants: bool = True

    def message(self) -> Message:
        """Say what was decided: "match golden a, b with target c, and what is inside"."""
        sides = {"golden": self.golden, "target": self.target}
        nodes = {side: _listed(names) for side, names in sides.items() if names}
        named = "both" if len(nodes) > 1 else next(iter(nodes), "none")
        decision = Message.of(f"matching.edit.{self.kind}.{named}", **nodes)
        return Message.of("matching.edit.with_children", edit=decision) if self.descendants else decision

    def refused(self, why: Message) -> Message:
        """Write the remark that it could not be applied to a pair of slices."""
        return Message.of(_REFUSED, edit=self.message(), why=why)

    def is_refused(self, note: Message) -> bool:
        """Tell whether a remark says that this edit could not be applied."""
        return note.id == _REFUSED and note.arguments["edit"] == self.message()

    def why_absent(self, golden: Container[str], target: Container[str]) -> Message | None:
        """Say which of its nodes a pair of slices lacks, given the names it has; None if it has all."""
        absent = [("golden", name) for name in self.golden if name not in golden]
        absent += [("target", name) for name in self.target if name not in target]
        if not absent:
            return None
        side, name = absent[0]
        return Message.of("matching.edit.no_node", side=side_named(side), node=name)


class MatchSetFile(Struct, frozen=True):
    """What a person decided, as it is written to a file and read back.

    Attributes:
        name: of the match set.
        edits: in the order in which they are applied.
        mappings: mapping files that hold for the comparison as well.
    """

    name: str
    edits: tuple[Edit, ...] = ()
    mappings: tuple[MappingFile, ...] = ()


def match(golden: str | Iterable[str], target: str | Iterable[str], *, descendants: bool = True) -> Edit:
    """Say that nodes are the same; several on one side were fused into the one on the other.

    Raises:
        SettingsError: both sides, or neither, have one node; or a node is named twice.
    """
    return checked(Edit(EditKind.MATCH, _names(golden), _names(target), descendants))


def unmatch(
    golden: str | Iterable[str] = (), target: str | Iterable[str] = (), *, descendants: bool = True
) -> Edit:
    """Say that nodes do not correspond to what they are matched with.

    Raises:
        SettingsError: no node is named, or one is named twice.
    """
    return checked(Edit(EditKind.UNMATCH, _names(golden), _names(target), descendants))


def checked(edit: Edit) -> Edit:
    """Return an edit that makes sense by itself.

    Raises:
        SettingsError: it does not, and why.
    """
    for side, names in (("golden", edit.golden), ("target", edit.target)):
        if len(set(names)) < len(names):
            raise SettingsError(
                Message.of("matching.edit.named_twice", side=side_named(side), edit=edit.message())
            )
    if edit.kind is EditKind.MATCH:
        _require_sides(edit)
    elif not (edit.golden or edit.target):
        raise SettingsError(
            Message.of("matching.edit.nothing_named"), hint=Message.of("matching.hint.name_nodes")
        )
    return edit


def _require_sides(edit: Edit) -> None:
    """Make sure that a match has nodes on either side, and one of them only one."""
    if not (edit.golden and edit.target):
        raise SettingsError(
            Message.of("matching.edit.one_side"), hint=Message.of("matching.hint.name_both_sides")
        )
    if len(edit.golden) > 1 and len(edit.target) > 1:
        counts = {"golden": len(edit.golden), "target": len(edit.target)}
        raise SettingsError(
            Message.of("matching.edit.several_with_several", **counts),
            hint=Message.of("matching.hint.several_with_one"),
        )


def _names(nodes: str | Iterable[str]) -> tuple[str, ...]:
    return (nodes,) if isinstance(nodes, str) else tuple(nodes)


def _listed(names: tuple[str, ...]) -> Message:
    more = len(names) - MOST_SHOWN
    if more > 0:
        return Message.of("matching.edit.many_nodes", nodes=names[:MOST_SHOWN], more=more)
    return Message.of("matching.edit.nodes", nodes=names)
