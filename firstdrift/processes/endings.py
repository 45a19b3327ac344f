"""What the way in which a process ended says about why, for a person."""

import signal
from typing import Final

_BY_SIGNAL: Final = {
    signal.SIGBUS: "a file became shorter while it was read: was the dump written again?",
    signal.SIGXCPU: "it needed more processor time than it may have",
    signal.SIGKILL: "it was killed, perhaps for want of memory",
}


def why_it_ended(status: int | None) -> str:
    """Say in a clause why a process ended.

    Args:
        status: its exit status, or less than 0 for the number of the signal that ended it; None if it has
            not ended.
    """
    if status is None:
        return "it gave no answer"
    if status >= 0:
        return f"it ended with status {status}"
    try:
        number = signal.Signals(-status)
    except ValueError:
        return f"it was ended by signal {-status}"
    return _BY_SIGNAL.get(number, f"it was ended by {number.name}")
