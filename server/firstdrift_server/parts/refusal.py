"""Why something that was asked for makes no sense, as pages say it beside what was asked."""

from msgspec import Struct

from firstdrift.errors import FirstdriftError
from firstdrift.wording.message import Message


class Refusal(Struct, frozen=True):
    """What is wrong, and what to try."""

    error: Message
    hint: Message | None


def refusal(error: FirstdriftError) -> Refusal:
    """Say why an error refuses what was asked for."""
    return Refusal(error.message, error.advice)
