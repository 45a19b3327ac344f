"""The exit statuses of the command `firstdrift`."""

from typing import Final

FOUND: Final = 1
"""A fault was found."""

UNUSABLE: Final = 2
"""An input could not be read or not be judged, or the call was wrong."""

CRASHED: Final = 70
"""Firstdrift itself failed (EX_SOFTWARE of sysexits.h)."""

INTERRUPTED: Final = 130
"""A person stopped it."""

BROKEN_PIPE: Final = 141
"""Whoever read the answer had gone."""
