"""What an address of the match page says: which nodes are picked, and what is to be done with them."""

from dataclasses import dataclass
from typing import Literal, Self

from firstdrift.errors import SettingsError
from firstdrift.matching.manual.edits import Edit, EditKind, checked
from firstdrift.wording.message import Message
from firstdrift_server.parts.addresses import query_of
from firstdrift_server.tree.state import Parameters
from firstdrift_server.validation import read_number

Side = Literal["golden", "target"]

SIDES: tuple[Side, Side] = ("golden", "target")


@dataclass(frozen=True, slots=True)
class Picking:
    """What an address of the page says.

    Attributes:
        match_set: which set; None for the comparison as it was found.
        golden: names of the picked golden nodes, in the order in which they were picked; likewise target.
        kind: what is to be done with them; None to decide by what they are.
        show_all: also nodes that have a partner.
        text: part of a name, by side.
        start: place of the first row that a pane shows, by side; None for where something is picked.
    """

    match_set: int | None = None
    golden: tuple[str, ...] = ()
    target: tuple[str, ...] = ()
    kind: EditKind | None = None
    descendants: bool = True
    show_all: bool = False
    text: tuple[str, str] = ("", "")
    start: tuple[int | None, int | None] = (None, None)

    @classmethod
    def read(cls, parameters: Parameters) -> Self:
        """Read an address or a form."""
        kind = parameters.get("kind") or ""
        if kind not in ("", *EditKind):
            raise SettingsError(
                Message.of("server.no_such_edit", kind=kind[:20]),
                hint=Message.of("server.choose", names=tuple(map(str, EditKind))),
            )
        golden, target = (tuple(dict.fromkeys(filter(None, parameters.getlist(side)))) for side in SIDES)
        find_golden, find_target = ((parameters.get(f"find_{side}") or "").strip() for side in SIDES)
        from_golden, from_target = (read_number(parameters.get(f"from_{side}"), "from") for side in SIDES)
        return cls(
            match_set=read_number(parameters.get("set"), "set") or None,
            golden=golden,
            target=target,
            kind=EditKind(kind) if kind else None,
            # A box that is not ticked is not sent at all, so the form says beside it that there is one.
            descendants=parameters.get("descendants") == "yes" or parameters.get("descendants_box") is None,
            show_all=parameters.get("show") == "all",
            text=(find_golden, find_target),
            start=(from_golden, from_target),
        )

    def names(self, side: Side) -> tuple[str, ...]:
        """Return the names that are picked of a side."""
        return self.golden if side == "golden" else self.target

    @property
    def has_any(self) -> bool:
        """True if a node is picked."""
        return bool(self.golden or self.target)

    def edit(self, kind: EditKind) -> Edit:
        """Give what is to be done with the picked nodes."""
        return checked(Edit(kind, self.golden, self.target, self.descendants))

    def query(self, *, picks: bool = True) -> str:
        """Write what the page shows as the part of an address after the question mark."""
        said = [("set", str(self.match_set or "")), ("show", "all" if self.show_all else "")]
        said += [(f"find_{side}", text) for side, text in zip(SIDES, self.text, strict=True)]
        if picks:
            said += [(side, name) for side in SIDES for name in self.names(side)]
            said += [("descendants_box", "" if self.descendants else "1")]
        return query_of((name, value) for name, value in said if value)
