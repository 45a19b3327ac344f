"""What the way in which a process ended says about why, for a person."""

import signal
from typing import Final

from firstdrift.wording.message import Message

_BY_SIGNAL: Final = {
    signal.SIGBUS: Message.of("processes.ended.file_became_shorter"),
    signal.SIGXCPU: Message.of("processes.ended.processor_time"),
    signal.SIGKILL: Message.of("processes.ended.killed"),
}


def why_it_ended(status: int | None) -> Message:
    """Say in a clause why a process ended.

    Args:
        status: its exit status, or less than 0 for the number of the signal that ended it; None if it has
            not ended.
    """
    if status is None:
        return Message.of("processes.ended.no_answer")
    if status >= 0:
        return Message.of("processes.ended.status", status=status)
    try:
        number = signal.Signals(-status)
    except ValueError:
        return Message.of("processes.ended.unnamed_signal", number=-status)
    return _BY_SIGNAL.get(number) or Message.of("processes.ended.signal", name=number.name)
