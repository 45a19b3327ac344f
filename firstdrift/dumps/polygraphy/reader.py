"""Read the outputs of a network that Polygraphy saved: `RunResults` as JSON, a file or a folder of files.

    polygraphy run model.onnx --onnxrt --onnx-outputs mark all --save-outputs golden.json
    polygraphy run … --save-outputs golden          golden/0000000000.json, one for each iteration

    {"lst": [["onnxrt-runner", [{"outputs": {"/model/layers.0/mlp/MatMul_output_0": …}, …}]]],
     "polygraphy_class": "RunResults"}

An iteration is a step. The slashes of ONNX stand for dots; "_output_0" is the place of an output.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from firstdrift.dumps.containers.base64_json import header_at, place_of, without_tensors
from firstdrift.dumps.containers.contents import Contents, DamagedError, TensorHeader, file_contents
from firstdrift.dumps.reader import DumpReader
from firstdrift.dumps.recorded_calls import Recorded, nodes_of
from firstdrift.dumps.storage.bounds import Bounds
from firstdrift.dumps.storage.folders import files_in, first_names, is_file, printable
from firstdrift.dumps.storage.json_file import parse_json
from firstdrift.dumps.storage.tensor_files import record_of
from firstdrift.errors import DumpNotRecognisedError, DumpUnreadableError
from firstdrift.files import open_regular
from firstdrift.model.slice import Coordinates, Dump, Problem, Slice, SliceListing
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.wording.message import Message

_SUFFIX: Final = ".json"
_MARK: Final = re.compile(
    rb'"(?:polygraphy_class"\s*:\s*"RunResults|__polygraphy_encoded_RunResults|outputs)"', re.DOTALL
)
_BEGIN: Final = re.compile(rb'\s*\{\s*"(?:lst|polygraphy_class|__polygraphy_encoded_RunResults)"')
_LOOKED_AT: Final = 512
_MOST_FILES: Final = 50
_ITERATION: Final = re.compile(r"(?P<number>[0-9]{10})\.json", re.ASCII)
_OUTPUT: Final = re.compile(r"(?P<node>.+?)_output_(?P<place>[0-9]{1,4})", re.DOTALL)


class PolygraphyReader(DumpReader):
    """The `DumpReader` of results of Polygraphy."""

    format = "polygraphy"
    title = Message.of("dumps.polygraphy.title")

    def recognise(self, path: Path) -> tuple[Message, ...]:
        """Return the evidence that a path is such a file, or holds some; empty if it does not."""
        found = _results(path)
        names = first_names([file.name for file in found])
        return (Message.of("dumps.polygraphy.results", files=names),) if found else ()

    def is_marked(self, folder: Path) -> bool:
        """Tell whether such a file lies in a folder."""
        return bool(_results(folder, most=1))

    def open_dump(self, path: Path) -> Dump:
        """List the iterations of a runner."""
        found = _results(path)
        if not found:
            raise self.none_at(path)
        bounds = Bounds.around(path)
        iterations = {
            int(match["number"]): file for file in found if (match := _ITERATION.fullmatch(file.name))
        }
        if len(found) > 1 and len(iterations) < len(found):
            several = Message.of("dumps.several", dumps=first_names([file.name for file in found]))
            raise DumpNotRecognisedError(several, path=path, hint=Message.of("dumps.choose_one"))
        if len(found) > 1:
            iterations = _all_iterations(path)
            listings = [SliceListing(Coordinates(step), file) for step, file in iterations.items()]
            return self.dump(path, listings)
        (file,) = found
        runs = _read(bounds.require(file)).runs
        count = max(len(runs[0].iterations), 1)
        places = [Coordinates()] if count == 1 else [Coordinates(step) for step in range(count)]
        problems = [Problem(printable(file.name), reason) for reason in _left_out(runs)]
        attributes = {"runner": printable(runs[0].runner)}
        return self.dump(path, [SliceListing(at, file) for at in places], problems, attributes)

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


def _results(path: Path, most: int = _MOST_FILES) -> list[Path]:
    """Return the files of results at a path, the first of them if they are many."""
    if is_file(path):
        return [path] if path.suffix == _SUFFIX and _is_marked(path) else []
    files = [file for file in files_in(path, 20 * _MOST_FILES) if file.suffix == _SUFFIX]
    return [file for file in files[:_MOST_FILES] if _is_marked(file)][:most]


def _all_iterations(folder: Path) -> dict[int, Path]:
    named = ((_ITERATION.fullmatch(file.name), file) for file in files_in(folder))
    return {int(match["number"]): file for match, file in named if match}


def _is_marked(file: Path) -> bool:
    """Tell whether a file begins as results do; its end is missing where it was cut short."""
    try:
        with open_regular(file) as opened:
            begin = opened.read(_LOOKED_AT)
            opened.seek(max(opened.seek(0, 2) - _LOOKED_AT, 0))
            return _BEGIN.match(begin) is not None and _MARK.search(begin + opened.read()) is not None
    except OSError:
        return False


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
                yield _Run(runner, tuple(_outputs(iteration) for iteration in iterations))


def _outputs(iteration: object) -> Mapping[str, Any]:
    outputs = iteration.get("outputs") if isinstance(iteration, dict) else None
    return outputs if isinstance(outputs, dict) else {}


def _header(contents: Contents, value: object) -> TensorHeader:
    """Describe what lies under the name of an output."""
    inner = value.get("values", value) if isinstance(value, dict) else None
    texts = (inner.get("array"), inner.get("tensor")) if isinstance(inner, dict) else ()
    place = next((place for text in texts if isinstance(text, str) and (place := place_of(text))), None)
    if place is None:
        return TensorHeader("", "", None, problem=Message.of("dumps.polygraphy.no_array"))
    return header_at(contents, place)


def _recorded(name: str, header: TensorHeader, file: Path) -> Recorded:
    path, key = _place(printable(name))
    record: TensorRecord = record_of(
        header, file, "base64_json", Role.OUTPUT, key, is_refused=not header.entry
    )
    is_onnx = name.startswith("/")
    return Recorded(path, Role.OUTPUT, key, (record,), type_name=path.rpartition(".")[2] if is_onnx else "")


def _place(name: str) -> tuple[str, str]:
    """Return path and key of an output, whose name may be a path of ONNX."""
    match = _OUTPUT.fullmatch(name)
    node, key = (match["node"], match["place"]) if match else (name, "0")
    return node.strip("/").replace("/", ".") or name, key
