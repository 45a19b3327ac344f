"""The matches that would resolve most of what has no partner, and what is found with them."""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy.orm import Session

from firstdrift.catalogue.comparisons.slice_pairs import SlicePair
from firstdrift.catalogue.engine import open_engine, reading
from firstdrift.catalogue.matches.likely_matches import LikelyMatch, likely_matches
from firstdrift.catalogue.matches.match_preview import Bench, State, effect, load_bench, state_of
from firstdrift.catalogue.matches.match_sets import MatchSet, get_match_set, no_match_set, options_of
from firstdrift.comparison.report import Options
from firstdrift.matching.manual.edits import Edit
from firstdrift.matching.tree import indexes_by_name
from firstdrift.model.node import Node
from firstdrift.wording.message import Message
from firstdrift_server.likely.entries import NodeShown

PREVIEW_SECONDS: Final = 0.5
"""After so long no further slice is looked at to say what is found with a match."""

AskedLikely = tuple[int, int | None, int]
"""Comparison, match set (None: the comparison as it was found), and position of the slice."""


class Likely(Struct, frozen=True):
    """A match that would resolve much.

    Attributes:
        more_pairs: how many pairs of tensors it adds to those of the matches before it.
        finding: what is said first with it and those before it; None if that stays as it is.
    """

    edit: Edit
    golden: tuple[NodeShown, ...]
    target: tuple[NodeShown, ...]
    score: float
    more_pairs: int
    finding: Message | None


class _Trial:
    """A match set with benches of its slices, each made once."""

    def __init__(self, session: Session, asked: AskedLikely) -> None:
        comparison, match_set, self.position = asked
        known = no_match_set(session, comparison) if match_set is None else get_match_set(session, match_set)
        self._session = session
        self.state = state_of(session, known)
        self._options = _options(self.state, known)
        self._benches: dict[int, Bench] = {}

    def bench_of(self, pair: SlicePair) -> Bench:
        """Give the bench of a pair of slices."""
        if pair.position not in self._benches:
            self._benches[pair.position] = load_bench(self._session, pair, self._options)
        return self._benches[pair.position]

    def finding_with(self, matches: Sequence[LikelyMatch]) -> Message | None:
        """Say what is found first with some matches; None if that stays as it is."""
        edits = [one.edit for one in matches]
        tried = effect(
            self._session, self.state, edits, self.bench_of, first=self.position, seconds=PREVIEW_SECONDS
        )
        before, after = tried.findings_before.summary, tried.findings_after.summary
        return None if before == after else after


def likely_in(database: str, asked: AskedLikely) -> tuple[Likely, ...]:
    """Choose the matches; `database` is the address of the catalogue.

    Raises:
        FirstdriftError: the comparison or its slice is gone, or the database is away.
    """
    engine = open_engine(database, checkpoints=False)
    try:
        with reading(engine) as session:
            return _likely(_Trial(session, asked))
    finally:
        engine.dispose()


def _likely(trial: _Trial) -> tuple[Likely, ...]:
    bench = trial.bench_of(next(one for one in trial.state.pairs if one.position == trial.position))
    found = likely_matches(bench, trial.state.edits)
    findings = [trial.finding_with(found[: count + 1]) for count in range(len(found))]
    places = {side: indexes_by_name(getattr(bench, side).nodes) for side in ("golden", "target")}
    return tuple(
        Likely(
            edit=one.edit,
            golden=_shown(bench.golden.nodes, places["golden"], one.edit.golden),
            target=_shown(bench.target.nodes, places["target"], one.edit.target),
            score=one.score,
            more_pairs=one.more_pairs,
            finding=None if finding == before else finding,
        )
        for one, finding, before in zip(found, findings, [None, *findings], strict=False)
    )


def _options(state: State, known: MatchSet) -> Options:
    """Give the options by which slices are matched by all rules but the edits."""
    matching = replace(options_of(state.base.options, known).matching, edits=())
    return replace(state.base.options, matching=matching)


def _shown(nodes: Sequence[Node], at: Mapping[str, int], names: Sequence[str]) -> tuple[NodeShown, ...]:
    return tuple(NodeShown(name, nodes[at[name]].type_name, nodes[at[name]].path) for name in names)
