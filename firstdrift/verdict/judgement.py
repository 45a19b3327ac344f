"""What is said of a pair, a row of the tree, a slice and a comparison.

    PairJudgement ─▶ RowJudgement ─▶ SliceJudgement ─▶ Findings

Everything here follows from a plan and its measurements, so that it can be said again under other
rules without reading a tensor.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeAlias

from msgspec import Struct

from firstdrift.model.node import Direction
from firstdrift.model.slice import Coordinates
from firstdrift.parallel.point_to_point import is_communication
from firstdrift.verdict.bit_count import BitsOfSlice
from firstdrift.verdict.confidence import Certainty, Confidence
from firstdrift.verdict.coverage import Coverage, Tally
from firstdrift.verdict.movable_thresholds import DEFAULTS, Thresholds
from firstdrift.verdict.shown_classes import shown_class
from firstdrift.verdict.training import Training
from firstdrift.wording.message import Message

Reasons: TypeAlias = tuple[Message, ...]
"""Why something is said, the most telling first."""

OWN_RULES = "firstdrift"
"""Name of our own rule set; the others are those of peers."""


class Verdict(StrEnum):
    """How a pair, a node or a slice came out, best first."""

    PASS = "pass"  # noqa: S105
    INCOMPARABLE = "incomparable"
    WARNING = "warning"
    ERROR = "error"

    @property
    def severity(self) -> int:
        """Rank for finding the worst: pass 0, incomparable 1, warning 2, error 3."""
        return _SEVERITY[self]


_SEVERITY = {verdict: rank for rank, verdict in enumerate(Verdict)}


class NodeClass(StrEnum):
    """What a node did to the error."""

    SOURCE = "source"
    WEIGHTS_DIFFER = "weights differ"
    NON_FINITE = "non-finite"
    STRUCTURE_DIFFERS = "structure differs"
    AMPLIFIED = "amplified"
    PROPAGATED = "propagated"
    HEALED = "healed"
    UNMATCHED = "unmatched"
    CLEAN = "clean"


ORIGINS = frozenset(
    {NodeClass.SOURCE, NodeClass.WEIGHTS_DIFFER, NodeClass.NON_FINITE, NodeClass.STRUCTURE_DIFFERS}
)
"""The classes of nodes at which an error begins."""


class Equality(StrEnum):
    """By what all that was compared is equal: bits, or no more than the statistics of some of it."""

    BITS = "bits"
    STATISTICS = "statistics"


class PairJudgement(Struct, frozen=True, gc=False):
    """The verdict of one pair of tensors.

    Attributes:
        error: the error the rules went by: relative L2 (with data, the worst row if larger), a lower
            bound of it (with statistics), 0 or infinity (digests, scalars); None if incomparable.
    """

    verdict: Verdict
    error: float | None
    reasons: Reasons = ()


class RollUp(Struct, frozen=True, gc=False):
    """What lies below a row, the row itself not counted."""

    error: int = 0
    warning: int = 0
    incomparable: int = 0
    unmatched: int = 0
    origins: int = 0
    worst: Verdict = Verdict.PASS


class RowJudgement(Struct, frozen=True, gc=False):
    """The verdict of one row of the tree.

    Attributes:
        verdict: the worst of its pairs, under the rules in force; of what healed, a warning.
        input_error: worst error of its inputs; None if none is known; likewise the other two.
        amplification: output error / input error; infinite of equal inputs, None if not known.
        worst_pair: index (in the plan) of the pair that the reasons are about; None if there is none.
        below: what lies below it.
        rule: what decided: "class.source", a rule of `classes.py`; of a clean row with an error what excuses
            it, "explanation.input" of `explanations.py`. None in what an earlier version judged.
        excused_up_to: the output error that what excuses it allows, where rounding alone does not; None of
            all other rows, and where any error is excused.
    """

    verdict: Verdict
    node_class: NodeClass
    reasons: Reasons = ()
    input_error: float | None = None
    parameter_error: float | None = None
    output_error: float | None = None
    amplification: float | None = None
    worst_pair: int | None = None
    below: RollUp = RollUp()
    rule: str | None = None
    excused_up_to: float | None = None


class Finding(Struct, frozen=True):
    """A place in the two runs, and what is wrong there.

    Attributes:
        coordinates: which slice, in the target's coordinates.
        golden: name of the golden node as its dump writes it; likewise target.
        module: dotted path of the innermost module around it on the target side; None if not known.
        tensor: role and key, "output.0"; None if it is about the node as a whole.
        node_class: what the node did to the error; None for tokens.
        verdict: warning or error.
        reasons: why, the most telling first.
        metrics: the numbers of the tensor by name.
        row: index of its row in the tree of its slice.
        amplification: by which suspects are ranked.
        amplified_by: output error over input error, as people are shown it; None where the input error is not
            above one rounding, and of what an earlier version found.
        on_rank: in a slice merged from ranks, the one that is off; None if it is not one alone, or that
            cannot be told.
        golden_ranks: the ranks from which the golden slice was merged, if that of the target was not:
            `on_rank` is one of these then.
        epoch: how many communications its rank had been through before.
        confidence: how sure it is; None of what other tools' rules flag, of tokens, and of what an earlier
            version found.
        direction: the pass that the node belongs to.
        shown: what its values show of how one tensor became the other; said of the first bad node.
        cause: what makes it differ, a clause for each sign (`firstdrift.verdict.cause`); empty where the
            reasons say it, or nothing recorded tells.
        entered: index (in the plan) of the input by which the error came in, where nothing recorded made it.
        rule: what decided, as in the judgement of its row; None of what an earlier version found.
        operator: short name of an operator that runs right in a module which holds modules as well; None
            where the module says enough.
    """

    coordinates: Coordinates
    golden: str
    target: str
    module: str | None
    tensor: str | None
    node_class: NodeClass | None
    verdict: Verdict
    reasons: Reasons
    metrics: Mapping[str, float | int | None]
    row: int
    amplification: float | None = None
    on_rank: int | None = None
    epoch: int = 0
    operator: str | None = None
    golden_ranks: tuple[int, ...] | None = None
    confidence: Confidence | None = None
    direction: Direction = Direction.NONE
    shown: Reasons = ()
    cause: Reasons = ()
    entered: int | None = None
    rule: str | None = None
    amplified_by: float | None = None

    @property
    def is_by_optimizer(self) -> bool:
        """True if an optimizer made the difference, and not the node."""
        return any(reason.id == "reason.optimizer" for reason in self.reasons)

    @property
    def is_suspected(self) -> bool:
        """True if the finding is not even likely."""
        return self.confidence is not None and self.confidence.certainty is Certainty.SUSPECTED

    @property
    def class_shown(self) -> str | None:
        """The class that people are shown; None for tokens."""
        return None if self.node_class is None else shown_class(self.node_class, self.rule)

    @property
    def name(self) -> str:
        """Name the node by its module where that is known."""
        return self.module or self.target or self.golden

    @property
    def place(self) -> Message | str:
        """Name the node, and what its name leaves open: the operator in a module, the backward pass."""
        if self.module and self.operator:  # whose name says the pass
            return Message.of("finding.operator_in", operator=self.operator, module=self.module)
        is_backward = self.direction is Direction.BACKWARD and self.module is not None
        return Message.of("finding.backward_of", node=self.name) if is_backward else self.name


class Communication(Struct, frozen=True):
    """A communication operator of one rank, by which errors come from another.

    Attributes:
        node: name of the target node.
        operator: "all_reduce", "send".
        group: ranks that take part; empty if the dump does not say, which means all.
        peer: with whom it is one to one; None for those of a group.
        number: which of the same operator and group (or peer) it is, from 0.
        given: its worst input as a finding, if it differs; None if it agrees or is not known.
        differs: whether what it gives differs; None if not known.
        agrees: whether what it is given is known to agree.
    """

    node: str
    operator: str
    group: tuple[int, ...]
    peer: int | None
    number: int
    given: Finding | None
    differs: bool | None
    agrees: bool


class InputDifference(Struct, frozen=True):
    """A slice whose input differs, so that its outputs are bound to.

    Attributes:
        coordinates: which slice.
        reason: what differs.
        golden: name of the node whose input shows it; likewise target; None if it follows from logits.
        target: name of the target node.
        tensor: role and key of the input.
        pair: its index in the plan; None if that is not the input itself.
    """

    coordinates: Coordinates
    reason: Message
    golden: str | None = None
    target: str | None = None
    tensor: str | None = None
    pair: int | None = None


class SystematicDifference(Struct, frozen=True):
    """A difference that a whole run has: said once, and no node is the first bad one for it.

    Attributes:
        coordinates: the first slice that shows it.
        rule: "systematic.rounded", the entry of `systematic.py`.
        reason: what it is.
        is_fault: whether a user must know of it; else it is healthy, and said.
    """

    coordinates: Coordinates
    rule: str
    reason: Message
    is_fault: bool


MOST_OVERFLOW: Final = 1000
"""So many nodes with non-finite values are listed of a slice: nearly all have some after the first."""


class Overflow(Struct, frozen=True):
    """A node with non-finite values, by msprobe's levels.

    Attributes:
        coordinates: which slice.
        node: name of the target node.
        level: "medium" (bad in, good out), "high" (bad in, bad out), "critical" (good in, bad out).
        reason: which values are not finite.
    """

    coordinates: Coordinates
    node: str
    level: str
    reason: Message


class Counts(Tally, frozen=True):
    """How many of each; unmatched counts are of nodes and tensors of paired and unpaired slices."""

    pairs: int = 0
    passed: int = 0
    warning: int = 0
    error: int = 0
    incomparable: int = 0
    unmatched_golden_nodes: int = 0
    unmatched_target_nodes: int = 0
    unmatched_golden_tensors: int = 0
    unmatched_target_tensors: int = 0


class Ties(Tally, frozen=True):
    """How many nodes chose otherwise by a tie, and how many pairs hold other rows for that."""

    nodes: int = 0
    pairs: int = 0

    @property
    def said(self) -> Message | None:
        """Say it once; None if there are none."""
        if not self.nodes:
            return None
        followed = "ties.followed" if self.pairs else "ties.alone"
        return Message.of(followed, nodes=self.nodes, tensors=self.pairs)


class SliceJudgement(Struct, frozen=True):
    """What is said of one pair of slices by looking at it alone.

    Attributes:
        origins: rows at which an error begins, in execution order, as findings.
        weak_origins: rows that stand out among their peers, but too little to be called an origin.
        worst: the row with the largest output error, as a finding; None if all are clean.
        logits: the last logits (or, failing these, the last output) with their metrics; None if there
            is nothing comparable.
        logits_error: error of `logits`; None if not known.
        logits_pair: index of their pair in the plan; None if there are none.
        roundoff: coarsest unit roundoff that anything in the slice was stored or computed in.
        logits_recorded: True if `logits` are logits, False if they are just the last output.
        golden_token: the token that the golden logits choose (greedy); likewise target_token.
        inputs_agree: whether the token ids are the same; None if none were compared.
        positions: number of tokens that the model was given; None if that does not show, or is not the same
            on both sides.
        compared_outputs: number of rows whose output was compared; 1 where logits alone were dumped.
        input_difference: set where the model's inputs differ.
        overflow: nodes with non-finite values that a healthy model does not have.
        rules: name of the rule set that the verdicts follow.
        communications: its communication operators, in execution order.
        limits: what errors were held against.
        noise: the error that the logits have in a healthy run; None if none is known.
        unlike: what makes the two look like runs of different models; None if nothing does. No error begins
            in such a slice, whatever differs.
        choice: path of the first module in which another expert was chosen by a tie, empty where no module
            is known; None if there is none.
        training: what it shows of training; None where no gradients were recorded.
        chosen_otherwise: the logits may be off because another expert was chosen by a tie.
        systematic: what differs throughout, and is no origin at any one node.
        bits: how many tensors are proven bit-equal, under the rule set "bitwise"; None under others.
        coverage: how much of the golden slice was compared; None of what an earlier version judged.
        given: error of what the model is given, where that differs too little to be something else.
        equality: by what all that was compared is equal; None if anything differs.
        ties: where nodes chose otherwise by a tie, with nothing wrong before.
        level: what a fault has reached is off by more than this; None where none shows.
    """

    coordinates: Coordinates
    rows: tuple[RowJudgement, ...]
    pairs: tuple[PairJudgement, ...]
    counts: Counts
    worst: Finding | None
    roundoff: float
    origins: tuple[Finding, ...] = ()
    logits: Finding | None = None
    logits_error: float | None = None
    logits_recorded: bool = False
    golden_token: int | None = None
    target_token: int | None = None
    weak_origins: tuple[Finding, ...] = ()
    inputs_agree: bool | None = None
    compared_outputs: int = 0
    input_difference: InputDifference | None = None
    overflow: tuple[Overflow, ...] = ()
    rules: str = OWN_RULES
    communications: tuple[Communication, ...] = ()
    positions: int | None = None
    limits: Thresholds = DEFAULTS
    noise: float | None = None
    logits_pair: int | None = None
    unlike: Message | None = None
    chosen_otherwise: bool = False
    choice: str | None = None
    training: Training | None = None
    bits: BitsOfSlice | None = None
    systematic: tuple[SystematicDifference, ...] = ()
    coverage: Coverage | None = None
    given: float = 0.0
    equality: Equality | None = None
    ties: Ties = Ties()
    level: float | None = None

    @property
    def own_origins(self) -> tuple[Finding, ...]:
        """The origins but communications: what these give wrong comes from another rank, or on the way."""
        return tuple(origin for origin in self.origins if not is_communication(origin.target))


class Remedy(StrEnum):
    """What helps where too little was compared to judge by."""

    MAPPING = "mapping"
    """Nodes of both dumps are left over: somebody says which belong together."""

    TENSORS = "tensors"
    """What belongs together could not be compared; the reasons stand with the tensors."""

    LEVEL = "level"
    """The target dump holds little more than its logits: ask for these alone."""

    DUMP = "dump"
    """The target dump holds nothing else: dump the same of both runs."""


class NotJudged(Struct, frozen=True):
    """That too little was compared to say that two runs agree.

    Attributes:
        why: what was compared, of what, and what hindered more.
        remedy: what helps.
    """

    why: Message
    remedy: Remedy


class Findings(Struct, frozen=True):
    """What a comparison says first.

    Attributes:
        summary: one sentence.
        first_bad_token: where the first token goes wrong; None if none does, or dumps know no tokens.
        first_bad_node: where the error begins; None if there is none or no single one.
        input_differs: slices whose inputs differ.
        rank_finding: on which rank it began; None with one rank or no finding.
        suspects: other places where an error begins, the strongest amplification first.
        overflow: nodes with non-finite values that a healthy model does not have.
        unlike: what makes the dumps look like those of different models in every slice, so that nothing is
            judged; None if they do not.
        systematic: what differs throughout, each once.
        coverage: how much of the golden dump was compared, of all slices that were; None of what an earlier
            version compared.
        ties: how many nodes chose otherwise among nearly equal values, which is no error, and what follows.
        not_judged: set where no bad token or node was found, but too little was compared to say that the
            runs agree.
    """

    summary: Message
    first_bad_token: Finding | None = None
    first_bad_node: Finding | None = None
    input_differs: tuple[InputDifference, ...] = ()
    rank_finding: Message | None = None
    suspects: tuple[Finding, ...] = ()
    overflow: tuple[Overflow, ...] = ()
    unlike: Message | None = None
    systematic: tuple[SystematicDifference, ...] = ()
    coverage: Coverage | None = None
    not_judged: NotJudged | None = None
    ties: Message | None = None

    @property
    def overflow_is_cut(self) -> bool:
        """Whether a slice may have more nodes with non-finite values than are listed."""
        return MOST_OVERFLOW in Counter(one.coordinates for one in self.overflow).values()

    @property
    def has_fault(self) -> bool:
        """Whether a fault was found: of a token, a node, or throughout."""
        found = self.first_bad_token is not None or self.first_bad_node is not None
        return found or any(one.is_fault for one in self.systematic)

    def tone(self, counts: Counts, unreadable: int) -> Verdict:
        """Say how the comparison came out as a whole: where a part cannot be read, nothing is well."""
        if self.has_fault:
            return Verdict.ERROR
        if self.unlike is not None or self.not_judged is not None:
            return Verdict.INCOMPARABLE
        if self.input_differs or self.overflow or counts.error + counts.warning:
            return Verdict.WARNING
        return Verdict.PASS if counts.pairs > counts.incomparable and not unreadable else Verdict.INCOMPARABLE
