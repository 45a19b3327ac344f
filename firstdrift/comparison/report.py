"""The answer to a comparison, as the terminal, the pages, JSON and notebooks show it."""

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct, field

from firstdrift.comparison.user_hooks import Additions
from firstdrift.matching.plan import MatchingRules, Messages, SlicePairing, SlicePlan, TensorPair
from firstdrift.metrics.measurement import Measurement
from firstdrift.model.slice import RECORDED_ORDER, Coordinates, Problem, Unfinished
from firstdrift.verdict.baseline import Noise
from firstdrift.verdict.comparable import prompt_starts
from firstdrift.verdict.judgement import Counts, Findings, SliceJudgement, Verdict
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message, joined
from firstdrift.wording.text import text_of

_INCOMPARABLE = Verdict.INCOMPARABLE
"""By itself, as it is asked of every pair: Python 3.11 looks up slowly what an enum holds."""


class Options(Struct, frozen=True):
    """What the user chose.

    Attributes:
        matching: which matching rules may be used, and which slices.
        rules: name of the rule set: "firstdrift", "msprobe", "msit" or "bitwise".
        level: compare only "layer", "module", "api" or "logits"; None for everything.
        thresholds: what the rule sets hold errors against.
        baseline: the comparison of the golden run with a healthy one, in the same catalogue, whose errors
            are no faults; None if there is none.
    """

    matching: MatchingRules = field(default_factory=MatchingRules)
    rules: str = "firstdrift"
    level: str | None = None
    thresholds: Thresholds = DEFAULTS
    baseline: int | None = None


class DumpSummary(Struct, frozen=True):
    """What was read of a dump, in numbers; nodes and tensors are counted over its compared slices.

    A tensor is one value of a node, as everywhere: Python arguments are counted too, as they are among pairs
    and unmatched tensors.

    Attributes:
        slices: of the whole dump.
        compared: how many of them were compared; None if that is not known.
        unfinished: slices beside them that are still being written.
    """

    path: str
    format: str
    slices: int
    nodes: int
    tensors: int
    problems: tuple[Problem, ...] = ()
    order_origin: Message = RECORDED_ORDER.message
    compared: int | None = None
    unfinished: tuple[Unfinished, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether all slices were compared, as far as is known."""
        return self.compared is None or self.compared >= self.slices


class SliceResult(Struct, frozen=True):
    """Everything known of one pair of slices: plan, tree, one measurement for each pair, judgement."""

    plan: SlicePlan
    rows: tuple[TreeRow, ...]
    measurements: tuple[Measurement, ...]
    judgement: SliceJudgement


class Alike(Struct, frozen=True):
    """Pairs of a slice that could not be compared for one reason.

    Attributes:
        why: the identifiers of the messages that say so.
        count: how many.
        first: the first of them; likewise reason.
    """

    why: tuple[str, ...]
    count: int
    first: TensorPair
    reason: Message


class SliceOutline(Struct, frozen=True):
    """What is said of a pair of slices without its rows and pairs: small, whatever its size.

    Attributes:
        judgement: without rows and pairs.
        notes: remarks on its match plan.
        unreadable: how many pairs could not be compared because a file is missing or damaged.
        incomparable: what could not be compared, by reason.
        listed: the first pairs that could not be compared, each with the reason; what follows from ties is
            not among them.
    """

    judgement: SliceJudgement
    notes: Messages
    unreadable: int
    incomparable: tuple[Alike, ...]
    listed: tuple[tuple[TensorPair, Message], ...]


class Report(Struct, frozen=True):
    """The answer to `firstdrift.compare`, as it is exported and shown.

    Attributes:
        golden: what was read of the golden dump; likewise target.
        options: what the user chose.
        pairing: which slices were compared, and which were left over.
        slices: one result for each pair of slices, in execution order; of many, each is read from a
            temporary file when it is asked for.
        outlines: what is said of each of them without rows and pairs.
        findings: what the page says first.
        counts: summed over all slices.
        seconds: time spent by stage: "index", "match", "measure", "total".
        unreadable: number of slices and pairs that could not be compared because a file is missing,
            damaged or not what the dump says it is.
        additions: what was done beside what the options say.
        noise: what a healthy run shows, by the coordinates of the golden slice; empty without one.
    """

    golden: DumpSummary
    target: DumpSummary
    options: Options
    pairing: SlicePairing
    slices: Sequence[SliceResult]
    outlines: tuple[SliceOutline, ...]
    findings: Findings
    counts: Counts
    seconds: Mapping[str, float]
    unreadable: int = 0
    additions: Additions = field(default_factory=Additions)
    noise: Mapping[Coordinates, Noise] = field(default_factory=dict)

    @property
    def summary(self) -> str:
        """What was found, as a sentence in English."""
        return text_of(self.findings.summary)

    def incomparable(self) -> Iterator[tuple[Coordinates, TensorPair, Message]]:
        """Yield the pairs that could not be compared, each with its slice and the reason."""
        for result in self.slices:
            for pair, judged in zip(result.plan.pairs, result.judgement.pairs, strict=True):
                if judged.verdict is _INCOMPARABLE:
                    yield result.judgement.coordinates, pair, joined(*judged.reasons)

    def notes(self) -> Messages:
        """Return the remarks on how slices and nodes were matched; those on one slice say which."""
        starts = prompt_starts([outline.judgement for outline in self.outlines])
        new = [Message.of("comparison.note.further_prompt", slice=at.name()) for at in starts]
        pairing = (*self.pairing.notes, *new)
        return all_notes(pairing, [(one.judgement.coordinates, one.notes) for one in self.outlines])


def all_notes(
    of_all: Sequence[Message], of_slices: Sequence[tuple[Coordinates, Sequence[Message]]]
) -> Messages:
    """Put remarks together: those on all slices are said once, those on some say on which."""
    shared = set.intersection(*(set(notes) for _, notes in of_slices)) if of_slices else set()
    said = dict.fromkeys(of_all)
    for coordinates, notes in of_slices:
        said |= dict.fromkeys(note if note in shared else _in_slice(coordinates, note) for note in notes)
    return tuple(said)


def _in_slice(coordinates: Coordinates, note: Message) -> Message:
    return Message.of("comparison.note.in_slice", slice=coordinates.name(), note=note)
