"""What both forms of msprobe's dumps share of which each slice has one JSON file: dump.json or debug.json."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from firstdrift.dumps.msprobe.layout import Layout, Mark, find_slices, read_header
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import shown_below
from firstdrift.dumps.storage.json_file import JsonFile, read_json
from firstdrift.dumps.storage.listed_files import problem_of_file
from firstdrift.errors import DumpNotFoundError, DumpNotRecognisedError, DumpUnreadableError
from firstdrift.model.slice import Dump, Problem, SliceListing
from firstdrift.model.tensor import TensorRecord
from firstdrift.wording.message import Message, joined


class JsonDumpReader(DumpReader):
    """A `DumpReader` of dumps with one JSON file for each slice.

    Attributes:
        mark: the file that makes a folder a slice.
    """

    mark: ClassVar[Mark]

    def layout(self, path: Path) -> Layout:
        """Find the slices at and below a path: a dump, one of its directories, or the file of a slice."""
        return find_slices(_top(path, self.mark.name), self.mark)

    def open_dump(self, path: Path) -> Dump:
        """List the slices of a dump, from the names of its directories."""
        layout = self.layout(path)
        if not layout.slices and not os.path.lexists(path):
            raise DumpNotFoundError(Message.of("dumps.nothing_here"), path=path)
        if not layout.slices:
            problems = (problem_of_file(problem.file, problem.reason) for problem in layout.problems)
            none = Message.of("dumps.msprobe.no_file", name=self.mark.name)
            raise DumpNotRecognisedError(joined(none, *problems), path=path)
        file = layout.slices[0].directory / self.mark.name
        header = (not Bounds.around(path).refusal(file) and read_header(file)) or {}
        problems_below = layout.problems_below(_top(path, self.mark.name))
        return self.dump(path, layout.slices, problems_below, header | layout.attributes)

    def shown(self, file: Path, path: Path) -> str:
        """Return where a file lies in the dump at a path."""
        return shown_below(file, _top(path, self.mark.name))


def _top(path: Path, name: str) -> Path:
    return path.parent if path.name == name else path


class SliceFiles:
    """Reads the JSON files of one slice, gathering what could not be used.

    Attributes:
        folder: where they lie.
        bounds: what no link among them may lead out of.
        problems: what could not be used.
    """

    def __init__(self, reader: JsonDumpReader, dump: Dump, listing: SliceListing) -> None:
        """Take the slice of a dump."""
        self.folder = listing.directory
        self.bounds = Bounds.around(dump.path)
        self.problems: list[Problem] = []
        self._reader, self._path = reader, dump.path

    def read_data(self) -> dict[str, Any]:
        """Read the file of the slice, whose "data" is an object.

        Raises:
            DumpUnreadableError: it is damaged, or a link that leads out of the dump.
        """
        file = self.folder / self._reader.mark.name
        read = read_json(self.bounds.require(file))
        if not isinstance(read.value, dict) or not isinstance(read.value.get("data"), dict):
            raise DumpUnreadableError(Message.of("dumps.msprobe.no_data"), path=file)
        self.report_repeated(file.name, read)
        return read.value

    def read_records(
        self, names: Iterable[str], read: Callable[[str, list[Message]], tuple[TensorRecord, ...]]
    ) -> dict[str, tuple[TensorRecord, ...]]:
        """Read the records of some names, each with what is wrong with it."""
        tensors: dict[str, tuple[TensorRecord, ...]] = {}
        problems_found: list[Message] = []
        for name in names:
            problems: list[Message] = []
            try:
                tensors[name] = read(name, problems)
            except RecursionError:
                problems.append(Message.of("dumps.record.nested_too_deeply"))
            problems_found += [
                Message.of("dumps.record.problem", record=name, problem=each) for each in problems
            ]
        self.report(self._reader.mark.name, problems_found)
        return tensors

    def report(self, file: str, reasons: Iterable[Message]) -> None:
        """Keep what could not be used of a file."""
        shown = self._reader.shown(self.folder / file, self._path)
        self.problems += [Problem(shown, reason) for reason in reasons]

    def report_repeated(self, file: str, read: JsonFile) -> None:
        """Keep which keys a file has more than once."""
        self.report(
            file, (Message.of("dumps.json.key_repeated", key=repr(key)) for key in read.repeated_keys)
        )
