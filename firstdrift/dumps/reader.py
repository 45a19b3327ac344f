"""What every reader offers, whatever the format on disk.

Opening a dump finds its slices; reading a slice finds its nodes and tensors from headers and indexes; only
`load_tensor` touches tensor data.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from firstdrift.model.slice import Dump, Slice, SliceListing


class DumpReader(Protocol):
    """What a module in `firstdrift.dumps` offers for its format."""

    def recognise(self, path: Path) -> tuple[str, ...]:
        """Return the evidence that a path is of this format; empty if it is not."""

    def open_dump(self, path: Path) -> Dump:
        """List the slices of a dump.

        Raises:
            DumpUnreadableError: a file that all else hangs on is damaged.
        """

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the nodes and tensors of a slice, without tensor data.

        Raises:
            DumpUnreadableError: a file that all else hangs on is damaged.
        """

    def read_stacks(self, dump: Dump, listing: SliceListing) -> Mapping[str, tuple[str, ...]]:
        """Return the Python call stack of each node name, innermost frame first; {} if none."""
