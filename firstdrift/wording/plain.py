"""A message as JSON: what it is, what stands in it, and its English text."""

from typing import Any

from firstdrift.wording.message import Argument, Message
from firstdrift.wording.text import text_of


def message_object(message: Message) -> dict[str, Any]:
    """Return `{"id": …, "arguments": …, "text": …}`; messages in gaps likewise."""
    arguments = {name: _plain(argument) for name, argument in message.arguments.items()}
    return {"id": message.id, "arguments": arguments, "text": text_of(message)}


def message_or_none(message: Message | None) -> dict[str, Any] | None:
    """Return a message as JSON; null for none."""
    return None if message is None else message_object(message)


def _plain(argument: Argument) -> Any:  # noqa: ANN401 (what JSON has)
    match argument:
        case Message():
            return message_object(argument)
        case tuple():
            return [_plain(one) for one in argument]
    return argument
