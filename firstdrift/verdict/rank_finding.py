"""On which rank an error began, or shows first, where there are several."""

from collections.abc import Sequence

from firstdrift.groups import known
from firstdrift.verdict.comparable import time_of
from firstdrift.verdict.judgement import Finding, InputDifference, SliceJudgement
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import ranks_named


def rank_of_node(
    bad_node: Finding, origins: Sequence[Finding], judgements: Sequence[SliceJudgement]
) -> Message | None:
    """Say on which rank the error of the first bad node began."""
    if bad_node.coordinates.merged or bad_node.golden_ranks:
        return _rank_of_merged(bad_node)
    ranks = _ranks(judgements)
    if bad_node.coordinates.rank is None or len(ranks) == 1:
        return None
    alike = {origin.coordinates.rank for origin in origins if _place(origin) == _place(bad_node)}
    if len(alike) > 1:
        return Message.of("rank.began_on_several", ranks=tuple(sorted(ranks & alike)))
    return Message.of("rank.began", rank=bad_node.coordinates.rank)


def rank_of_input(inputs: Sequence[InputDifference], judgements: Sequence[SliceJudgement]) -> Message | None:
    """Say on which rank alone the input first differs."""
    first = [one.coordinates for one in inputs if time_of(one.coordinates) == time_of(inputs[0].coordinates)]
    differ = {coordinates.rank for coordinates in first} - {None}
    if len(differ) != 1 or len(_ranks(judgements)) == 1:
        return None
    return Message.of("rank.only_its_input", rank=differ.pop())


def rank_of_token(
    bad_token: Finding, bad_tokens: Sequence[Finding], judgements: Sequence[SliceJudgement]
) -> Message | None:
    """Say on which rank the first bad token shows, where no node tells on which it began."""
    if bad_token.on_rank is not None:
        of_golden = "_on_golden" if bad_token.golden_ranks is not None else ""
        return Message.of(f"rank.shows{of_golden}", rank=bad_token.on_rank)
    ranks = _ranks(judgements)
    if bad_token.coordinates.rank is None or len(ranks) == 1:
        return None
    now = time_of(bad_token.coordinates)
    at_once = {one.coordinates.rank for one in bad_tokens if time_of(one.coordinates) == now}
    if len(at_once) == 1:
        return Message.of("rank.shows_first", rank=bad_token.coordinates.rank)
    return Message.of("rank.shows_on_several", ranks=tuple(sorted(ranks & at_once)))


def _ranks(judgements: Sequence[SliceJudgement]) -> set[int]:
    ranks = (judged.coordinates.rank for judged in judgements)
    return set(known(ranks))


def _place(finding: Finding) -> tuple[object, ...]:
    return finding.epoch, finding.target, time_of(finding.coordinates)


def _rank_of_merged(bad_node: Finding) -> Message:
    """Say which of the ranks that were merged, of the target or else of the golden dump, is off."""
    merged = bad_node.coordinates.merged
    if merged is not None:
        if bad_node.on_rank is not None:
            return Message.of("rank.began", rank=bad_node.on_rank)
        return Message.of("rank.merged", ranks=ranks_named(merged))
    if bad_node.on_rank is not None:
        return Message.of("rank.of_golden", rank=bad_node.on_rank)
    return Message.of("rank.golden_merged", ranks=ranks_named(bad_node.golden_ranks or ()))
