"""Which sequence of the trainer is which of the rollout: by a name, by tokens, or by order.

by name    both sides have the field in every sequence, and a value in common; where several have one value,
           as the answers to one prompt have its uid, those of the same tokens belong together, and of the
           rest the last one of each side, or all in their order where tokens are not known
by tokens  there is no such field: those of the same prompt and the same tokens, in their order
by order   tokens are not known either, and both sides have as many sequences

A field is taken together with the step, where both sides know it. What has no partner is given, too.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from msgspec import Struct

from firstdrift.errors import RolloutUnreadableError
from firstdrift.groups import firsts, not_in, seconds
from firstdrift.rollout.fields import GROUPS, IDS, STEP, digest
from firstdrift.rollout.sequences import TokenSequence
from firstdrift.wording.message import Message

Key = Callable[[TokenSequence], Hashable | None]


class Pairing(Struct, frozen=True):
    """What belongs together, by the places of the sequences on their sides.

    Attributes:
        by: how that was found.
        pairs: place on the side of the rollout, place on that of the trainer.
        rollout_only: those without a partner.
        trainer_only: likewise.
    """

    by: Message
    pairs: tuple[tuple[int, int], ...]
    rollout_only: tuple[int, ...]
    trainer_only: tuple[int, ...]


def pair_sequences(rollout: Sequence[TokenSequence], trainer: Sequence[TokenSequence]) -> Pairing:
    """Find what belongs together.

    Raises:
        RolloutUnreadableError: there is nothing to tell it by.
    """
    has_steps = all(STEP in one.names for one in (*rollout, *trainer))
    tokens = _token_key(rollout, trainer)
    for field in (*IDS, *GROUPS):
        named = _named(field, has_steps=has_steps)
        theirs = set(map(named, trainer))
        if None in theirs or any(named(one) is None for one in rollout):
            continue
        if any(named(one) in theirs for one in rollout):
            by = Message.of("rollout.by.name", field=field)
            return _paired(rollout, trainer, by, _within_names(rollout, trainer, named, tokens))
    if tokens is not None:
        same = _same(range(len(rollout)), range(len(trainer)), rollout, trainer, tokens)
        return _paired(rollout, trainer, Message.of("rollout.by.tokens"), same)
    if len(rollout) != len(trainer):
        counts = {"rollout": len(rollout), "trainer": len(trainer)}
        raise RolloutUnreadableError(Message.of("rollout.not_paired", **counts))
    return _paired(rollout, trainer, Message.of("rollout.by.order"), enumerate(range(len(trainer))))


def _paired(
    rollout: Sequence[TokenSequence],
    trainer: Sequence[TokenSequence],
    by: Message,
    found: Iterable[tuple[int, int]],
) -> Pairing:
    pairs = tuple(sorted(found))
    return Pairing(
        by,
        pairs,
        tuple(_without(range(len(rollout)), firsts(pairs))),
        tuple(_without(range(len(trainer)), seconds(pairs))),
    )


def _named(field: str, *, has_steps: bool) -> Key:
    def named(one: TokenSequence) -> Hashable | None:
        name = one.names.get(field)
        return None if name is None else (one.names[STEP] if has_steps else None, name)

    return named


def _token_key(rollout: Sequence[TokenSequence], trainer: Sequence[TokenSequence]) -> Key | None:
    """Return what tells sequences by their tokens; None if they are not known on both sides."""
    everyone = (*rollout, *trainer)
    kinds = {one.prompt.partition(":")[0] for one in everyone}
    has_prompts = len(kinds) == 1 and "" not in kinds
    has_ids = all(one.tokens is not None for one in everyone)
    if not has_ids and any(one.texts is None for one in everyone):
        return None

    def key(one: TokenSequence) -> Hashable:
        said = one.tokens[one.counts] if has_ids and one.tokens is not None else None
        data = said.tobytes() if said is not None else "\0".join(one.texts or ()).encode("utf-8", "replace")
        return (one.prompt if has_prompts else "", digest(data))

    return key


def _within_names(
    rollout: Sequence[TokenSequence], trainer: Sequence[TokenSequence], named: Key, tokens: Key | None
) -> Iterator[tuple[int, int]]:
    groups: dict[Hashable, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for side, sequences in enumerate((rollout, trainer)):
        for place, one in enumerate(sequences):
            groups[named(one)][side].append(place)
    for ours, theirs in groups.values():
        same = [] if tokens is None else list(_same(ours, theirs, rollout, trainer, tokens))
        yield from same
        left = _without(ours, firsts(same))
        others = _without(theirs, seconds(same))
        if len(left) == len(others) and (len(left) == 1 or tokens is None):
            yield from zip(left, others, strict=True)


def _without(places: Iterable[int], taken: Iterable[int]) -> list[int]:
    gone = set(taken)
    return not_in(places, gone)


def _same(
    ours: Iterable[int],
    theirs: Iterable[int],
    rollout: Sequence[TokenSequence],
    trainer: Sequence[TokenSequence],
    key: Key,
) -> Iterator[tuple[int, int]]:
    waiting: dict[Hashable, list[int]] = defaultdict(list)
    for place in reversed(list(theirs)):
        waiting[key(trainer[place])].append(place)
    for place in ours:
        if found := waiting.get(key(rollout[place])):
            yield place, found.pop()
