"""What every reader offers, whatever the format on disk.

Opening a dump finds its slices; reading a slice finds its nodes and tensors from headers and indexes; only
`load_tensor` touches tensor data.
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from msgspec import Struct

from firstdrift.dumps.storage.folders import NAMES_SHOWN, files_in, first_names, is_file
from firstdrift.errors import DumpNotRecognisedError
from firstdrift.model.slice import Dump, Problem, Slice, SliceListing
from firstdrift.wording.message import Message


class Part(Struct, frozen=True):
    """How folders inside a dump are told, which make no dump by themselves.

    Attributes:
        path: is found in their absolute path, with "/" between its parts.
        message: says what they are.
        hint: says what to open instead.
    """

    path: re.Pattern[str]
    message: Message
    hint: Message


class Basis(Struct, frozen=True):
    """What decides what is found in a slice.

    Attributes:
        paths: files, and folders with all that lies in them.
        beside: what else does, in words that are other ones when it is something else.
    """

    paths: tuple[Path, ...]
    beside: tuple[str, ...] = ()


class DumpReader(ABC):
    """Reads the dumps of one format; `dumps/detect.py` has a table of all.

    Attributes:
        format: its name in the table, in reports and in the catalogue.
        title: what a dump of it is called: "an msprobe dump".
        marks: names of files and folders, one of which lies in a folder of such a dump.
        part: how folders inside such a dump are told; None if any of them can be opened.
        is_last_resort: whether a path is of this format only if nothing in it has the marks of another.
    """

    format: ClassVar[str]
    title: ClassVar[Message]
    marks: ClassVar[tuple[str, ...]] = ()
    part: ClassVar[Part | None] = None
    is_last_resort: ClassVar[bool] = False

    @abstractmethod
    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is of this format; empty if it is not."""

    def is_marked(self, folder: Path) -> bool:
        """Tell whether a folder belongs to a dump of this format, whole or damaged, by what lies in it."""
        return any(os.path.exists(folder / name) for name in self.marks)  # noqa: PTH110 (never raises)

    @abstractmethod
    def open_dump(self, path: Path) -> Dump:
        """List the slices of a dump.

        Raises:
            DumpNotRecognisedError: the path is not of this format.
            DumpUnreadableError: a file that all else hangs on is damaged.
        """

    @abstractmethod
    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the nodes and tensors of a slice, without tensor data.

        Raises:
            DumpUnreadableError: a file that all else hangs on is damaged.
        """

    def bases(self, dump: Dump) -> Mapping[SliceListing, Basis]:  # noqa: ARG002
        """Say what decides what `read_slice` finds in each slice; {} where anything in the dump may."""
        return {}

    def read_stacks(self, dump: Dump, listing: SliceListing) -> Mapping[str, tuple[str, ...]]:  # noqa: ARG002
        """Return the Python call stack of each node name, innermost frame first; {} if none were recorded.

        Raises:
            DumpUnreadableError: the file that holds them is damaged.
        """
        return {}

    def dump(
        self,
        path: Path,
        listings: Iterable[SliceListing],
        problems: Iterable[Problem] = (),
        attributes: Mapping[str, str | Message] | None = None,
    ) -> Dump:
        """Describe the dump at a path, its slices in the order of execution."""
        return Dump(
            path=path,
            format=self.format,
            evidence=self.recognise(path),
            slices=tuple(sorted(listings, key=lambda listing: listing.coordinates.sort_key())),
            problems=tuple(problems),
            attributes=attributes or {},
        )

    def none_at(self, path: Path) -> DumpNotRecognisedError:
        """Refuse a path where no dump of this format lies, or more than one."""
        return DumpNotRecognisedError(Message.of("dumps.not_of_format", format=self.title), path=path)


class FilesReader(DumpReader):
    """Reads dumps whose slices lie in files of one folder that are told by how they are named and begin.

    Attributes:
        evidence: id of the message that names the files.
        suffixes: of such files.
        most_entries: how many entries of a folder are looked at.
        most_files: how many files of such a suffix are opened there.
    """

    evidence: ClassVar[str]
    suffixes: ClassVar[frozenset[str]]
    most_entries: ClassVar[int]
    most_files: ClassVar[int]

    @abstractmethod
    def is_one(self, file: Path) -> bool:
        """Tell whether a file of such a suffix is of this format, by its name and its beginning."""

    def files(self, path: Path) -> list[Path]:
        """Return the files of a dump at a path: itself, or those in it."""
        candidates = [path] if is_file(path) else files_in(path, self.most_entries)
        named = [file for file in candidates if file.suffix in self.suffixes]
        return list(filter(self.is_one, named[: self.most_files]))

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is such a file, or holds some; empty if it does not."""
        names = first_names([file.name for file in self.files(path)])
        return (Message.of(self.evidence, files=names),) if names else ()

    def is_marked(self, folder: Path) -> bool:
        """Tell whether such a file lies in a folder."""
        return bool(self.files(folder))

    def files_at(self, path: Path) -> list[Path]:
        """Return the files of the dump at a path, of which there are some.

        Raises:
            DumpNotRecognisedError: there are none.
        """
        files = self.files(path)
        if not files:
            raise self.none_at(path)
        return files


def several_at(path: Path, files: Sequence[Path], most_named: int = NAMES_SHOWN) -> DumpNotRecognisedError:
    """Refuse a path where several dumps lie."""
    several = Message.of("dumps.several", dumps=first_names([file.name for file in files], most_named))
    return DumpNotRecognisedError(several, path=path, hint=Message.of("dumps.choose_one"))
