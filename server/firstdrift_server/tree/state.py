"""What a tree shows, as it is written into its address.

?row=4821&open=0.1.40-60&verdict=error&verdict=warning&q=mlp

Everything about a view is in its address, so that reloading it or sending it shows the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self
from urllib.parse import urlencode

import numpy as np

from firstdrift.catalogue.comparisons.outline import (
    CLASSES,
    DIRECTIONS,
    KINDS,
    LEVELS,
    VERDICTS,
    WAYS,
    Flags,
    Outline,
)
from firstdrift.errors import SettingsError
from firstdrift.groups import known_items
from firstdrift.verdict.shown_classes import BY_RULE, OF_CLASS
from firstdrift.wording.message import Message
from firstdrift_server.parts.tree_row import UNMATCHED
from firstdrift_server.validation import read_number

SHOWN_CLASSES = (*map(str, CLASSES), *(BY_RULE[way] for way in WAYS))
"""The classes that people are shown."""


def _place_of_class(shown: str) -> float:
    """Order them as the verdict does, and in which way a node has its class after that class."""
    if shown in OF_CLASS:
        return SHOWN_CLASSES.index(OF_CLASS[shown]) + 0.5
    return SHOWN_CLASSES.index(shown)


CHOICES: Mapping[str, tuple[str, ...]] = {
    "verdict": (*map(str, reversed(VERDICTS)), UNMATCHED),
    "class": tuple(sorted((one for one in SHOWN_CLASSES if one != UNMATCHED), key=_place_of_class)),
    "kind": tuple(map(str, KINDS)),
    "direction": tuple(map(str, DIRECTIONS)),
    "overflow": tuple(reversed(LEVELS)),
}
"""What can be filtered by. To be unmatched is shown in place of a verdict, so it is chosen beside them."""


SORTS = ("tree", "execution", "error", "amplification")
"""How rows are ordered: as a tree, or as a list without what contains them."""

COLUMNS = (
    *(
        "order",
        "type",
        "golden",
        "origin",
        "input",
        "parameter",
        "output",
        "amplification",
        "class",
        "verdict",
    ),
    "reason",
)
"""What can be shown beside the name of a row."""

SHOWN = ("golden", "input", "output", "class", "verdict")
"""What is shown unless a visitor chooses."""


class Parameters(Protocol):
    """What an address has after its question mark."""

    def get(self, key: str) -> str | None:
        """Return the value of a parameter."""

    def getlist(self, key: str) -> list[str]:
        """Return all values of a parameter."""


@dataclass(frozen=True, slots=True)
class TreeState:
    """What a visitor chose.

    Attributes:
        row: the selected row; None for the first bad one.
        open: the open rows, as `write_rows` writes them; None if only what leads to `row` is open, or
            the first levels where nothing was chosen and nothing is bad.
        closed: the closed rows, where all others are open: with filters, or after "expand all".
        chosen: values that rows must have, by filter; a filter without values lets all through.
        text: part of a name.
        is_regex: the text is a regular expression.
        sort: one of SORTS.
        columns: those of COLUMNS that are shown.

    Trees of another kind have other `choices`, `sorts`, `known_columns`, and other columns `shown` at first.
    """

    choices: ClassVar[Mapping[str, tuple[str, ...]]] = CHOICES
    sorts: ClassVar[tuple[str, ...]] = SORTS
    known_columns: ClassVar[tuple[str, ...]] = COLUMNS
    shown: ClassVar[tuple[str, ...]] = SHOWN

    row: int | None = None
    open: str | None = None
    closed: str | None = None
    chosen: tuple[tuple[str, frozenset[str]], ...] = ()
    text: str = ""
    is_regex: bool = False
    sort: str = SORTS[0]
    columns: tuple[str, ...] = SHOWN

    @classmethod
    def read(cls, parameters: Parameters) -> Self:
        """Read the state from an address."""
        chosen = {name: frozenset(parameters.getlist(name)) for name in cls.choices}
        for name, values in chosen.items():
            _check(name, values, cls.choices[name])
        sort, columns = parameters.get("sort") or cls.sorts[0], frozenset(parameters.getlist("column"))
        _check("order", frozenset({sort}), cls.sorts)
        _check("column", columns, cls.known_columns)
        return cls(
            row=read_number(parameters.get("row"), "row"),
            open=parameters.get("open"),
            closed=parameters.get("closed"),
            chosen=tuple((name, values) for name, values in chosen.items() if values),
            text=(parameters.get("q") or "").strip(),
            is_regex=parameters.get("regex") == "1",
            sort=sort,
            columns=tuple(name for name in cls.known_columns if name in columns) or cls.shown,
        )

    @property
    def is_filtered(self) -> bool:
        """True if some rows may be left out."""
        return bool(self.chosen or self.text)

    @property
    def is_list(self) -> bool:
        """True if rows are listed one after the other, without what contains them."""
        return self.sort != SORTS[0]

    def parameters(self) -> list[tuple[str, str]]:
        """Give the state as parameters of an address, in one order, so that equal states look equal."""
        given = {
            "row": self.row,
            "open": self.open,
            "closed": self.closed,
            "q": self.text or None,
            "regex": 1 if self.is_regex else None,
            "sort": self.sort if self.is_list else None,
        }
        columns = [("column", name) for name in self.columns if self.columns != self.shown]
        filters = [
            (name, value) for name, values in self.chosen for value in self.choices[name] if value in values
        ]
        return [(name, str(value)) for name, value in known_items(given).items()] + filters + columns

    def query(self) -> str:
        """Write the state as the part of an address after the question mark."""
        return urlencode(self.parameters())

    def at(self, row: int | None) -> Self:
        """Select another row."""
        return replace(self, row=row)

    def without_position(self) -> Self:
        """Keep the filters only: what makes sense in another slice too."""
        return replace(self, row=None, open=None, closed=None)


def _check(name: str, values: frozenset[str], known: Sequence[str]) -> None:
    if unknown := values - set(known):
        raise SettingsError(
            Message.of("server.no_such_value", name=name, value=min(unknown)),
            hint=Message.of("server.choose", names=tuple(known)),
        )


def write_rows(outline: Outline, chosen: Flags) -> str:
    """Write which of the rows with children are chosen: "0.1.40-60", a range where no other lies between."""
    branches = np.flatnonzero(outline.last > np.arange(len(outline)))
    flags = chosen[branches].astype(np.int8)
    edges = np.diff(flags, prepend=0, append=0)
    starts, ends = branches[edges[:-1] == 1], branches[edges[1:] == -1]
    return ".".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def read_rows(outline: Outline, text: str) -> Flags:
    """Read what `write_rows` wrote."""
    chosen = np.zeros(len(outline), np.bool_)
    for part in filter(None, text.split(".")):
        first, dash, last = part.partition("-")
        start, end = read_number(first, "row"), read_number(last if dash else first, "row")
        if start is None or end is None:
            raise SettingsError(Message.of("server.no_list_of_rows", text=part[:20]))
        chosen[start : end + 1] = True
    return chosen


def codes_of(known: Sequence[str], chosen: Iterable[str]) -> list[int]:
    """Return the places of chosen words among the known ones."""
    return [known.index(word) for word in chosen if word in known]
