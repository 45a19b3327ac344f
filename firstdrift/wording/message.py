"""A message: what is to be said, before anybody has put it into words."""

from collections.abc import Mapping
from typing import TypeAlias, Union

from msgspec import Struct, field

Argument: TypeAlias = Union[
    str, int, float, bool, "Message", tuple[Union[str, int, float, "Message"], ...], None
]
"""What a message can speak of: names, numbers, and messages in turn."""

VERBATIM = "verbatim"
"""The id of a message that is a text already: that of a foreign tool, or of an earlier version."""


class Message(Struct, frozen=True):
    """Something to be said to a person.

    Attributes:
        id: which text of the catalogue, "room.name".
        arguments: what stands in the gaps of that text, by name.
    """

    id: str
    arguments: Mapping[str, Argument] = field(default_factory=dict)

    @classmethod
    def of(cls, id: str, /, **arguments: Argument) -> "Message":  # noqa: A002 (as its field)
        """Make a message from its id and what stands in its gaps."""
        return cls(id, arguments)

    def __hash__(self) -> int:
        """Hash by value, as messages are compared."""
        return hash((self.id, frozenset(self.arguments.items())))


def verbatim(text: str) -> Message:
    """Make a message of a text that others wrote: an exception of a library, a file of an earlier version."""
    return Message.of(VERBATIM, text=text)


def joined(*messages: Message) -> Message:
    """Say several things one after the other, as clauses: "a; b"."""
    return messages[0] if len(messages) == 1 else Message.of("clauses", clauses=messages)
