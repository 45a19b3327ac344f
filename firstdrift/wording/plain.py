"""A message as JSON: what it is, what stands in it, and its text."""

from typing import Any

from firstdrift.wording.message import Argument, Message
from firstdrift.wording.text import SOURCE, text_of


def message_object(message: Message, language: str = SOURCE) -> dict[str, Any]:
    """Return `{"id": …, "arguments": …, "text": …}`; messages in gaps likewise."""
    arguments = {name: _plain(argument, language) for name, argument in message.arguments.items()}
    return {"id": message.id, "arguments": arguments, "text": text_of(message, language)}


def _plain(argument: Argument, language: str) -> Any:  # noqa: ANN401 (what JSON has)
    match argument:
        case Message():
            return message_object(argument, language)
        case tuple():
            return [_plain(one, language) for one in argument]
    return argument
