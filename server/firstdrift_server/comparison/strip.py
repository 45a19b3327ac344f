"""The slices of a comparison as a strip of cells: a line for each step and rank, a cell for each token.

step 0 · rank 0    [0 pass] [1 pass] [2 error] [3 input differs]
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.groups import gathered, known
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.judgement import Findings, Verdict
from firstdrift.verdict.limit import OF_ERRORS, Limit, limit_of_outputs
from firstdrift.wording.message import Message
from firstdrift_frontend.metric_names import CHARTED
from firstdrift_server.parts.measured_from import measured_by
from firstdrift_server.parts.sentence import Places

AXES = ("token", "micro_step", "step", "rank")
"""What a cell may stand for: the first of these by which slices differ."""

INPUT_DIFFERS = "input differs"


@dataclass(frozen=True, slots=True)
class Cell:
    """A slice in the strip.

    Attributes:
        slice: its position in the comparison.
        label: what tells it from its neighbours: "3".
        title: all of its coordinates.
        state: its verdict, or "input differs".
        is_first_bad: it holds the first bad token or the first bad node.
        value: the chosen metric; None if it is not known of this slice.
        is_inside: it fails although this output is within the limit: the error is inside the model.
    """

    slice: int
    label: str
    title: Message
    state: str
    is_first_bad: bool
    value: float | None
    is_inside: bool


@dataclass(frozen=True, slots=True)
class Line:
    """The cells of one step and rank."""

    label: Message
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Strip:
    """The slices of a comparison under one metric.

    Attributes:
        axis: what a cell stands for: "token", "step", ...
        metric: the name of the chosen metric; None where slices have none.
        metrics: the names of all that there are.
        threshold: the limit that the rules in force hold the chosen metric against, if they have one.
        of_logits: True if the numbers are of logits, False if of the last output that was compared.
    """

    axis: str
    metric: str | None
    metrics: tuple[str, ...]
    lines: tuple[Line, ...]
    threshold: Limit | None
    of_logits: bool

    @property
    def measured_from(self) -> str:
        """What errors come from: "statistics" gives lower bounds, "digest" no number at all, else "data"."""
        return measured_by(dict.fromkeys(self.metrics))

    @property
    def has_inside(self) -> bool:
        """True if a cell fails by an error that does not reach its output."""
        return any(cell.is_inside for line in self.lines for cell in line.cells)

    @property
    def states(self) -> frozenset[str]:
        """The states that cells are in."""
        return frozenset(cell.state for line in self.lines for cell in line.cells)


def strip_of(slices: Sequence[SlicePair], findings: Findings | None, wanted: str | None) -> Strip:
    """Lay the slices out under a metric; under the most telling one if that one is not there."""
    metrics = _charted(slices)
    metric = wanted if wanted in metrics else next(iter(metrics), None)
    axis = next((name for name in AXES if len({getattr(pair.target, name) for pair in slices}) > 1), "token")
    marked = _Marked.of(slices, findings)
    judged = [pair.judgement for pair in slices]
    first_bad = findings.first_bad_token if findings else None
    limit = limit_of_outputs(metric, judged, first_bad) if metric else None
    ceiling = limit.value if limit and metric in OF_ERRORS else None
    lines = gathered(
        (_others(pair.target, axis), _cell(pair, axis, metric, marked, ceiling)) for pair in slices
    )
    return Strip(
        axis=axis,
        metric=metric,
        metrics=metrics,
        lines=tuple(Line(label, tuple(cells)) for label, cells in lines.items()),
        threshold=limit,
        of_logits=any(pair.judgement.logits_recorded for pair in slices),
    )


def states_of(slices: Sequence[SlicePair], findings: Findings | None) -> dict[int, str]:
    """Say of each slice, by its position, its verdict or that its input differs."""
    marked = _Marked.of(slices, findings)
    return {pair.position: marked.state(pair) for pair in slices}


def metrics_of(pair: SlicePair) -> Mapping[str, float | int | None]:
    """Return the metrics of the logits of a slice, or of its last output."""
    return pair.judgement.logits.metrics if pair.judgement.logits is not None else {}


def _charted(slices: Sequence[SlicePair]) -> tuple[str, ...]:
    """List the metrics there are; to be equal is one only where nothing else is known."""
    known = tuple(name for name in CHARTED if any(name in metrics_of(pair) for pair in slices))
    return known if known == ("equal",) else tuple(name for name in known if name != "equal")


@dataclass(frozen=True, slots=True)
class _Marked:
    """Positions of the slices that the findings name."""

    first_bad: frozenset[int | None]
    input_differs: frozenset[int | None]

    @classmethod
    def of(cls, slices: Sequence[SlicePair], findings: Findings | None) -> "_Marked":
        if findings is None:
            return cls(frozenset(), frozenset())
        places = Places(slices)
        first = known((findings.first_bad_token, findings.first_bad_node))
        return cls(
            frozenset(places.position(found.coordinates) for found in first),
            frozenset(places.position(found.coordinates) for found in findings.input_differs),
        )

    def state(self, pair: SlicePair) -> str:
        return INPUT_DIFFERS if pair.position in self.input_differs else str(pair.verdict)


def _cell(pair: SlicePair, axis: str, metric: str | None, marked: _Marked, ceiling: float | None) -> Cell:
    coordinate = getattr(pair.target, axis)
    state = marked.state(pair)
    value = metrics_of(pair).get(metric) if metric is not None else None
    return Cell(
        slice=pair.position,
        label=str(pair.position if coordinate is None else coordinate),
        title=pair.target.name(),
        state=state,
        is_first_bad=pair.position in marked.first_bad,
        value=value,
        is_inside=state == Verdict.ERROR and ceiling is not None and value is not None and value <= ceiling,
    )


def _others(coordinates: Coordinates, axis: str) -> Message:
    """Name the coordinates that a line of cells has in common."""
    return Coordinates(
        **{name: getattr(coordinates, name) for name in Coordinates.__struct_fields__ if name != axis}
    ).name()
