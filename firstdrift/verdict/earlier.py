"""What the slices that ran before bear on the judgement of one, added up as they are judged.

However many there were, it is asked in the same time: of what they show, only that is kept which a later
slice is held against.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from firstdrift.model.slice import Coordinates
from firstdrift.verdict.comparable import When, by_input, in_order, time_of
from firstdrift.verdict.evidence import Before, Fault
from firstdrift.verdict.judgement import OWN_RULES, Counts, SliceJudgement
from firstdrift.verdict.systematic import OF_WEIGHTS, PRODUCTS
from firstdrift.verdict.training import Training

_TIMES_KEPT: Final = 3
"""Of each rank: slices of one time are held against the time before, and a step may be several slices."""


class Context(NamedTuple):
    """What earlier slices bear on one: two of which this is equal are judged alike.

    Attributes:
        before: what they show of the whole run.
        choice: where another expert was chosen before, and whether in a step of training; None if none was.
        are_alike: all of them were given the same, and chose the same tokens. Where they were not, it takes
            all of them to tell what follows from that.
        has_origins: an error began in one of them.
    """

    before: Before
    choice: tuple[str | None, bool] | None
    are_alike: bool
    has_origins: bool


class Earlier:
    """Slices that were judged, in order.

    Attributes:
        has_training: one of them is a step of training.
    """

    def __init__(self, judged: Iterable[SliceJudgement] = ()) -> None:
        """Begin with those that were."""
        self.has_training = False
        self._judged: list[SliceJudgement] = []
        self._of_weights, self._hide_faults, self._roundoff = False, False, 0.0
        self._first_origin: When | None = None
        self._faults: dict[int, tuple[When, Fault]] = {}
        self._first_unlike: When | None = None
        self._choices: defaultdict[int, list[SliceJudgement]] = defaultdict(list)
        self._trained: defaultdict[int, dict[When, Training]] = defaultdict(dict)
        for one in judged:
            self.add(one)

    def add(self, judged: SliceJudgement) -> None:
        """Add the next one."""
        at, rank = time_of(judged.coordinates), _rank(judged.coordinates)
        self._judged.append(without_parameters(judged))
        for found in judged.systematic:
            if found.rule in OF_WEIGHTS:
                self._of_weights = True
                self._hide_faults |= judged.limits.hides_faults(judged.roundoff)
            if found.rule == PRODUCTS.name:
                self._roundoff = max(self._roundoff, judged.roundoff)
        if judged.origins:
            self._first_origin = min(self._first_origin or at, at)
            self._add_fault(judged)
        if not _is_alike(judged):
            self._first_unlike = min(self._first_unlike or at, at)
        if judged.choice if judged.training is None else judged.choice is not None:
            self._choices[rank].append(judged)
        if judged.training is not None:
            self._add_training(at, rank, judged.training)

    def _add_fault(self, judged: SliceJudgement) -> None:
        if judged.level is not None and judged.rules == OWN_RULES:
            rank = _rank(judged.coordinates)
            fault = time_of(judged.coordinates), Fault(judged.origins[0].target, judged.level)
            self._faults[rank] = min(self._faults.get(rank, fault), fault)

    def _add_training(self, at: When, rank: int, training: Training) -> None:
        self.has_training = True
        trained = self._trained[rank]
        trained.setdefault(at, training)
        for old in sorted(trained)[:-_TIMES_KEPT]:
            del trained[old]

    def bearing_on(self, at: Coordinates) -> "Earlier":
        """Leave out what has no bearing on the slice at some coordinates: to be sent to where it is judged.

        However many slices there were, little is left while all of them were given the same; from then on it
        is what each of them was given, and chose.
        """
        few = Earlier()
        few.has_training, few._roundoff = self.has_training, self._roundoff
        few._of_weights, few._hide_faults = self._of_weights, self._hide_faults
        few._first_origin, few._first_unlike = self._first_origin, self._first_unlike
        if self._may_be_other_input(at):
            few._judged = [_input_of(one) for one in self._judged if time_of(one.coordinates) <= time_of(at)]
        rank, before = _rank(at), self._before(at)
        few._faults = {rank: self._faults[rank]} if rank in self._faults else {}
        if (chose := self._chose(at)) is not None:
            few._choices[rank].append(replace(_input_of(chose), choice=chose.choice, training=chose.training))
        if before is not None:
            few._trained[rank][before] = self._trained[rank][before]
        return few

    def context(self, at: Coordinates) -> Context:
        """Say what bears on the slice at some coordinates."""
        chose = self._chose(at)
        return Context(
            Before(self._training(at), self._of_weights, self._hide_faults, self._roundoff, self._fault(at)),
            None if chose is None else (chose.choice, chose.training is not None),
            self._first_unlike is None or self._first_unlike > time_of(at),
            self._first_origin is not None,
        )

    def _training(self, at: Coordinates) -> Training | None:
        """Return what the step before shows, on the same rank; after a fault that excuses nothing."""
        before = self._before(at)
        return None if before is None else self._trained[_rank(at)][before]

    def _before(self, at: Coordinates) -> When | None:
        """Say when the step before was, unless an error began before."""
        now = time_of(at)
        if self._first_origin is not None and self._first_origin < now:
            return None
        return max((when for when in self._trained[_rank(at)] if when < now), default=None)

    def _fault(self, at: Coordinates) -> Fault | None:
        """Return the error that began first on the same rank, at a time before."""
        when, fault = self._faults.get(_rank(at), (None, None))
        return fault if when is not None and when < time_of(at) else None

    def _chose(self, at: Coordinates) -> SliceJudgement | None:
        """Return the first slice before in which another expert was chosen.

        Of a token, a cache of keys and values remembers it; of a training step, all parameters do.
        """
        now = time_of(at)
        return next((one for one in self._choices[_rank(at)] if time_of(one.coordinates) < now), None)

    def is_other_input(self, judged: SliceJudgement) -> bool:
        """Tell whether a slice runs on another input, because of what the two runs did before."""
        if not self._may_be_other_input(judged.coordinates):
            return False
        before = [one for one in self._judged if time_of(one.coordinates) <= time_of(judged.coordinates)]
        _, comparable = by_input(in_order([*before, judged]))
        return not any(one is judged for one in comparable)

    def _may_be_other_input(self, at: Coordinates) -> bool:
        return self._first_unlike is not None and self._first_unlike <= time_of(at)


def without_parameters(judged: SliceJudgement) -> SliceJudgement:
    """Leave out the parameters of a step of training, which only the next one is held against."""
    training = judged.training
    return judged if training is None else replace(judged, training=replace(training, parameters={}))


def _input_of(judged: SliceJudgement) -> SliceJudgement:
    """Keep what shows which input a slice was given, and what it makes the next one's."""
    return SliceJudgement(
        judged.coordinates,
        rows=(),
        pairs=(),
        counts=Counts(),
        worst=None,
        roundoff=judged.roundoff,
        golden_token=judged.golden_token,
        target_token=judged.target_token,
        inputs_agree=judged.inputs_agree,
        input_difference=judged.input_difference,
        positions=judged.positions,
        unlike=judged.unlike,
    )


def _is_alike(judged: SliceJudgement) -> bool:
    return judged.input_difference is None and judged.golden_token == judged.target_token


def _rank(coordinates: Coordinates) -> int:
    return coordinates.sort_key()[-1]
