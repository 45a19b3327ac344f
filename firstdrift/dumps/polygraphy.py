"""Read the outputs of a network that Polygraphy saved: `RunResults` as JSON, a file or a folder of files.

    polygraphy run model.onnx --onnxrt --onnx-outputs mark all --save-outputs golden.json
    polygraphy run … --save-outputs golden          golden/0000000000.json, one for each iteration

    {"lst": [["onnxrt-runner", [{"outputs": {"/model/layers.0/mlp/MatMul_output_0": …}, …}]]],
     "polygraphy_class": "RunResults"}

An iteration is a step. The slashes of ONNX stand for dots; "_output_0" is the place of an output.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from firstdrift.dumps.containers.base64_json import header_at, place_of, without_tensors
from firstdrift.dumps.containers.contents import Contents, DamagedError, TensorHeader, file_contents
from firstdrift.dumps.reader import FilesReader, several_at
from firstdrift.dumps.recorded_calls import Recorded, nodes_of
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import files_in, first_names, is_file, printable
from firstdrift.dumps.storage.json_file import parse_json
from firstdrift.dumps.storage.tensor_data import no_header, record_of
from firstdrift.errors import DumpUnreadableError
from firstdrift.files import open_regular
from firstdrift.model.slice import Coordinates, Dump, Problem, Slice, SliceListing
from firstdrift.model.tensor import Role
from firstdrift.wording.message import Message

_MARK: Final = re.compile(
    rb'"(?:polygraphy_class"\s*:\s*"RunResults|__polygraphy_encoded_RunResults|outputs)"', re.DOTALL
)
_BEGIN: Final = re.compile(rb'\s*\{\s*"(?:lst|polygraphy_class|__polygraphy_encoded_RunResults)"')
_LOOKED_AT: Final = 512
_ITERATION: Final = re.compile(r"(?P<number>[0-9]{10})\.json", re.ASCII)
_OUTPUT: Final = re.compile(r"(?P<node>.+?)_output_(?P<place>[0-9]{1,4})", re.DOTALL)


class PolygraphyReader(FilesReader):
    """The `DumpReader` of results of Polygraphy."""

    format = "polygraphy"
    title = Message.of("dumps.polygraphy.title")
    evidence = "dumps.polygraphy.results"
    suffixes = frozenset({".json"})
    most_entries, most_files = 1000, 50

    def is_one(self, file: Path) -> bool:
        """Tell whether a file begins as results do; its end is missing where it was cut short."""
        try:
            with open_regular(file) as opened:
                begin = opened.read(_LOOKED_AT)
                opened.seek(max(opened.seek(0, 2) - _LOOKED_AT, 0))
                return _BEGIN.match(begin) is not None and _MARK.search(begin + opened.read()) is not None
        except OSError:
            return False

    def open_dump(self, path: Path) -> Dump:
        """List the iterations of a runner."""
        found = self.files_at(path)
        if len(found) > 1:
            if len(_iterations(found)) < len(found):
                raise several_at(path, found)
            iterations = _iterations(files_in(path))
            return self.dump(
                path, (SliceListing(Coordinates(step), file) for step, file in iterations.items())
            )
        file = Bounds.around(path).require(found[0])
        runs = _read(file).runs
        count = len(runs[0].iterations)
        listings = [SliceListing(Coordinates(step), file) for step in (range(count) if count > 1 else [None])]
        problems = [Problem(printable(file.name), reason) for reason in _left_out(runs)]
        return self.dump(path, listings, problems, {"runner": printable(runs[0].runner)})

    def read_slice(self, dump: Dump, listing: SliceListing) -> Slice:
        """Read the headers of the tensors of an iteration."""
        file = Bounds.around(dump.path).require(listing.directory)
        read = _read(file)
        own_file = _ITERATION.fullmatch(file.name) is not None and not is_file(dump.path)
        at = 0 if own_file else listing.coordinates.step or 0
        iterations = read.runs[0].iterations
        if at >= len(iterations):
            raise DumpUnreadableError(Message.of("dumps.plain.files_gone"), path=file)
        recorded = [
            _recorded(name, _header(read.contents, value), file) for name, value in iterations[at].items()
        ]
        problems = [Problem(printable(file.name), reason) for reason in _left_out(read.runs) if own_file]
        return Slice(listing, nodes_of(recorded), problems=tuple(problems))


class _Run(Struct, frozen=True):
    """What a runner gave: its outputs by name, for each iteration."""

    runner: str
    iterations: tuple[Mapping[str, Any], ...]


class _Read(Struct, frozen=True):
    """A file of results."""

    contents: Contents
    runs: tuple[_Run, ...]


def _iterations(files: Iterable[Path]) -> dict[int, Path]:
    """Return those of some files that are named after iterations, by number."""
    named = ((_ITERATION.fullmatch(file.name), file) for file in files)
    return {int(match["number"]): file for match, file in named if match}


def _left_out(runs: tuple[_Run, ...]) -> Iterator[Message]:
    """Say which runners are not read: what two of them gave is compared as two dumps."""
    if len(runs) > 1:
        names = first_names([run.runner for run in runs[1:]])
        yield Message.of("dumps.polygraphy.other_runners", runners=names)


def _read(file: Path) -> _Read:
    """Read all of a file but its tensors.

    Raises:
        DumpUnreadableError: it is damaged, or holds no results.
    """
    try:
        contents = file_contents(file)
        value = parse_json(without_tensors(contents)).value
    except DamagedError as exc:
        raise DumpUnreadableError(exc.message, path=file) from exc
    except RecursionError as exc:
        raise DumpUnreadableError(Message.of("dumps.json.nested_too_deeply"), path=file) from exc
    except ValueError as exc:
        raise DumpUnreadableError(Message.of("dumps.json.incomplete", error=str(exc)), path=file) from exc
    runs = tuple(_runs(value))
    if not runs:
        raise DumpUnreadableError(Message.of("dumps.polygraphy.no_runner"), path=file)
    return _Read(contents, runs)


def _runs(value: object) -> Iterator[_Run]:
    listed = value.get("lst") if isinstance(value, dict) else None
    for item in listed if isinstance(listed, list) else ():
        match item:
            case [str(runner), list(iterations)]:
                yield _Run(runner, tuple(map(_outputs, iterations)))


def _outputs(iteration: object) -> Mapping[str, Any]:
    outputs = iteration.get("outputs") if isinstance(iteration, dict) else None
    return outputs if isinstance(outputs, dict) else {}


def _header(contents: Contents, value: object) -> TensorHeader:
    """Describe what lies under the name of an output."""
    inner = value.get("values", value) if isinstance(value, dict) else None
    texts = (inner.get("array"), inner.get("tensor")) if isinstance(inner, dict) else ()
    place = next((place for text in texts if isinstance(text, str) and (place := place_of(text))), None)
    if place is None:
        return no_header(Message.of("dumps.polygraphy.no_array"), is_refused=True)
    return header_at(contents, place)


def _recorded(name: str, header: TensorHeader, file: Path) -> Recorded:
    path, key = _place(printable(name))
    record = record_of(header, file, "base64_json", Role.OUTPUT, key)
    is_onnx = name.startswith("/")
    return Recorded(path, Role.OUTPUT, key, (record,), type_name=path.rpartition(".")[2] if is_onnx else "")


def _place(name: str) -> tuple[str, str]:
    """Return path and key of an output, whose name may be a path of ONNX."""
    match = _OUTPUT.fullmatch(name)
    node, key = (match["node"], match["place"]) if match else (name, "0")
    return node.strip("/").replace("/", ".") or name, key
