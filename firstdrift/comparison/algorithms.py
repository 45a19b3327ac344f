"""Algorithms of one's own: a number for each pair of tensors, from a Python function.

    def mse(golden, target):                     --algorithm my.py:mse   ─▶   a column "mse"
        return ((golden - target) ** 2).mean()

They run code, so they are given in a notebook or on the command line, and never through the web. A function
gets two read-only arrays of one shape, and returns a number, or a number and a remark. One that takes torch
tensors gets these. What it raises is the remark of that pair, and harms no other.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.comparison.as_torch import WANTS_TORCH, Caller
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.errors import SettingsError, TensorUnreadableError
from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.metrics.comparability import common_shape
from firstdrift.metrics.measurement import CustomResult, Measurement, MeasurementKind
from firstdrift.wording.message import Message

if TYPE_CHECKING:
    import numpy.typing as npt

Algorithm = Callable[..., Any]
"""A function of a golden and a target array that returns a number, or a number and a remark."""

_SHOWN = 100

_WRITE_AS = Message.of("comparison.algorithm.write_as")

REMARK = "_remark"
"""Ends the name of the column with what an algorithm said beside its number."""


def load_algorithms(wanted: Iterable[str]) -> tuple[Algorithm, ...]:
    """Run the files named in `FILE.py:FUNCTION` and return the functions.

    Raises:
        SettingsError: there is no such file or function, or the file raises an error.
    """
    modules: dict[Path, dict[str, Any]] = {}
    found: list[Algorithm] = []
    for given in wanted:
        name, _, function = given.rpartition(":")
        file = Path(name)
        if not name or not function.isidentifier():
            names_no = Message.of("comparison.algorithm.names_no_function", given=given)
            raise SettingsError(names_no, hint=_WRITE_AS)
        if file not in modules:
            modules[file] = _run(file)
        if not callable(modules[file].get(function)):
            raise SettingsError(Message.of("comparison.algorithm.no_function", name=function), path=file)
        found.append(modules[file][function])
    return tuple(found)


def require_names(algorithms: Sequence[Algorithm], taken: Iterable[str]) -> None:
    """Make sure that each algorithm has a name of its own, under which its numbers are shown.

    Raises:
        SettingsError: two have the same, or one has that of a metric.
    """
    names = set(taken)
    for algorithm in algorithms:
        name = name_of(algorithm)
        if name in names:
            taken_by = Message.of("comparison.algorithm.name_taken", name=name)
            raise SettingsError(taken_by, hint=Message.of("comparison.algorithm.name_it_otherwise"))
        names |= {name, name + REMARK}


def name_of(algorithm: Algorithm) -> str:
    """Return the name under which the numbers of an algorithm are shown."""
    return str(getattr(algorithm, "__name__", type(algorithm).__name__))


def with_results(
    algorithms: Sequence[Algorithm], plan: SlicePlan, measurements: Sequence[Measurement]
) -> list[Measurement]:
    """Run the algorithms on all pairs of a plan that were measured element by element.

    A pair that has their results already is left as it is.
    """
    callers = [(name_of(algorithm), Caller(algorithm)) for algorithm in algorithms]
    return [
        measured
        if measured.custom is not None
        else replace(measured, custom=_results(callers, pair, measured))
        for pair, measured in zip(plan.pairs, measurements, strict=True)
    ]


class Summary(Struct, frozen=True):
    """What became of one algorithm.

    Attributes:
        values: of how many pairs it gave a number.
        failed: on how many pairs it raised an error, or returned no number.
        failures: the first hundred of these: target node, tensor, what it raised.
        reasons: what it raised, the most frequent first: on how many pairs, and the first of them.
        not_given: why it was not given pairs, the most frequent first: how many pairs, and why.
    """

    name: str
    values: int
    failed: int
    failures: tuple[tuple[str, str, str], ...]
    reasons: tuple[tuple[int, tuple[str, str, str]], ...]
    not_given: tuple[tuple[int, str], ...] = ()

    @property
    def hint(self) -> Message | None:
        """What to try, if the function was not written for arrays."""
        wants_torch = any(WANTS_TORCH.search(remark) for _, (*_, remark) in self.reasons)
        return Message.of("comparison.algorithm.for_torch") if wants_torch else None


class Measured(Protocol):
    """A pair of slices, as far as its summary goes: its plan, and the measurement of each pair."""

    @property
    def plan(self) -> SlicePlan:
        """What was compared."""

    @property
    def measurements(self) -> Sequence[Measurement]:
        """What was measured of each pair."""


def summaries(slices: Iterable[Measured], algorithms: Sequence[Algorithm]) -> tuple[Summary, ...]:
    """Say of each algorithm of how many pairs it gave a number, and where it failed."""
    results: list[list[tuple[TensorPair, CustomResult]]] = [[] for _ in algorithms]
    for compared in slices:
        for pair, measured in zip(compared.plan.pairs, compared.measurements, strict=True):
            for of_algorithm, result in zip(results, measured.custom or (), strict=False):
                of_algorithm.append((pair, result))
    return tuple(map(_summary, map(name_of, algorithms), results))


def _summary(name: str, results: Sequence[tuple[TensorPair, CustomResult]]) -> Summary:
    failed = [(pair.target_node, pair.target.label, own.remark) for pair, own in results if own.failed]
    values = sum(own.value is not None for _, own in results)
    not_given = Counter(own.remark for _, own in results if not own.failed and own.value is None)
    return Summary(
        name,
        values,
        len(failed),
        tuple(failed[:_SHOWN]),
        _reasons(failed),
        tuple((number, why) for why, number in not_given.most_common()),
    )


def _reasons(failed: Sequence[tuple[str, str, str]]) -> tuple[tuple[int, tuple[str, str, str]], ...]:
    first = {failure[-1]: failure for failure in reversed(failed)}
    reasons = Counter(failure[-1] for failure in failed).most_common()
    return tuple((number, first[reason]) for reason, number in reasons)


def _results(
    callers: Sequence[tuple[str, Caller]], pair: TensorPair, measured: Measurement
) -> tuple[CustomResult, ...]:
    first, second = pair.golden.location, pair.target.location
    why = _why_not_given(pair, measured)
    if why or first is None or second is None:
        return _not_given(callers, why)
    try:
        golden, target = load_tensor(first), load_tensor(second)
    except TensorUnreadableError as error:
        return _not_given(callers, str(error))
    shape = common_shape(golden.shape, target.shape, may_reshape=bool(pair.transform))
    if shape is not None:
        golden, target = golden.reshape(shape), target.reshape(shape)
    return tuple(_result(name, caller, (golden, target)) for name, caller in callers)


def _not_given(callers: Sequence[tuple[str, Caller]], why: str) -> tuple[CustomResult, ...]:
    return tuple(CustomResult(name, remark=why) for name, _ in callers)


def _why_not_given(pair: TensorPair, measured: Measurement) -> str:
    """Say why no algorithm is given a pair; empty if they are given it."""
    if measured.kind is MeasurementKind.SCALAR:
        return "a Python argument, no tensor"
    lacking = pair.without_values
    if lacking:
        return "no values in either dump" if len(lacking) > 1 else f"no values in the {lacking[0]} dump"
    if measured.kind is not MeasurementKind.DATA:
        return "the two could not be compared"
    return "joined from several tensors" if pair.is_joined else ""


def _read_only(array: "npt.NDArray[Any]") -> "npt.NDArray[Any]":
    """Return a view; of a dtype that numpy lacks, the same values as float32 or int8."""
    if array.dtype.type.__module__ == "ml_dtypes":
        whole = array.dtype.name.startswith(("int", "uint"))
        array = array.astype("int8" if whole else "float32")
    array = array.view()
    array.flags.writeable = False
    return array


def _result(
    name: str, caller: Caller, originals: "tuple[npt.NDArray[Any], npt.NDArray[Any]]"
) -> CustomResult:
    try:
        result = caller((_read_only(originals[0]), _read_only(originals[1])), originals)
        value, remark = result if isinstance(result, tuple) else (result, "")
        return CustomResult(name, float(value), str(remark))
    except Exception as error:  # noqa: BLE001 (somebody else's code: whatever it raises is its result)
        return CustomResult(name, remark=_described(error), failed=True)


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _run(file: Path) -> dict[str, Any]:
    """Run a Python file as a module of its own and return what it defines."""
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location(f"firstdrift_algorithms_of_{file.stem}", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise SettingsError(Message.of("comparison.algorithm.no_file"), path=file, hint=_WRITE_AS)
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # somebody else's code: it may raise anything
        why = Message.of("comparison.algorithm.cannot_run", error=_described(error))
        raise SettingsError(why, path=file) from error
    return vars(module)
