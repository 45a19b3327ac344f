"""Tell which token each run of an ATB dump belongs to, from the operations that lie in it.

A process has two models: one reads the prompt (prefill), one makes each further token (decode). Their
operations share one count, so that an operation's running number says whose it is. The prefill and the
first decode share a folder, and a warm-up may come before them:

    folder                  0          1          2          3
    operations              0…15       0…31       16…31      16…31
                            warm-up    token 0    token 2    token 3
                                       token 1
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from itertools import groupby

from msgspec import Struct

from firstdrift.wording.message import Message


class Phase(StrEnum):
    """Which model's operations gave a token."""

    PREFILL = "prefill"
    DECODE = "decode"
    ALL = "all"


class Run(Struct, frozen=True):
    """One run of a model.

    Attributes:
        folder: number of the folder it lies in.
        phase: which of the operations there are its own.
        token: the token it gave; of a warm-up, counted from its own beginning.
        is_warm_up: whether it came before the prompt.
    """

    folder: int
    phase: Phase
    token: int
    is_warm_up: bool = False


class TokenTable(Struct, frozen=True):
    """Which token each run gave.

    Attributes:
        runs: in ascending order of folders, a prefill before the decode beside it.
        reason: how this is known, one clause.
        problem: why it is not known for sure; None if it is.
    """

    runs: tuple[Run, ...]
    reason: Message
    problem: Message | None = None


def assign_tokens(orders: Mapping[int, Collection[int]], decode_start: int | None) -> TokenTable:
    """Say which token each run gave, by the running numbers of the operations in each numbered folder.

    `decode_start` is the smallest such number of the model that decodes; None if no such model is known.
    """
    folders = sorted(folder for folder, found in orders.items() if found)
    if decode_start is None:
        return _by_number(folders, Message.of("dumps.atb.tokens.folders"))
    phases = {folder: _phases(orders[folder], decode_start) for folder in folders}
    if not folders or Phase.PREFILL not in phases[folders[0]]:
        taken, no_prefill = Message.of("dumps.atb.tokens.taken"), Message.of("dumps.atb.no_prefill")
        return _by_number(folders, taken, no_prefill)
    if any(len(found) > 1 for found in phases.values()):
        prompt = _last_of_first_row(phases, lambda found: len(found) > 1)
        return _from_prompt(phases, prompt, Message.of("dumps.atb.tokens.both", folder=prompt))
    prompt = _last_of_first_row(phases, lambda found: Phase.PREFILL in found)
    if prompt != folders[-1]:
        return _from_prompt(phases, prompt, Message.of("dumps.atb.tokens.prefill_first", folder=prompt))
    problem = Message.of("dumps.atb.no_decode", folder=prompt)
    return _from_prompt(phases, prompt, Message.of("dumps.atb.tokens.prefill", folder=prompt), problem)


def _phases(orders: Collection[int], decode_start: int) -> tuple[Phase, ...]:
    has = {Phase.PREFILL: min(orders) < decode_start, Phase.DECODE: max(orders) >= decode_start}
    return tuple(phase for phase, is_there in has.items() if is_there)


def _by_number(folders: Collection[int], reason: Message, problem: Message | None = None) -> TokenTable:
    return TokenTable(tuple(Run(folder, Phase.ALL, folder) for folder in folders), reason, problem)


def _last_of_first_row(
    phases: Mapping[int, tuple[Phase, ...]], is_wanted: Callable[[tuple[Phase, ...]], bool]
) -> int:
    """Return the last of the first wanted folders that follow one another."""
    rows = groupby(phases, key=lambda folder: is_wanted(phases[folder]))
    return next(list(row)[-1] for wanted, row in rows if wanted)


def _from_prompt(
    phases: Mapping[int, tuple[Phase, ...]], prompt: int, reason: Message, problem: Message | None = None
) -> TokenTable:
    """Number the runs from the folder of the prompt on; those before it are a warm-up."""
    warm_up = [folder for folder in phases if folder < prompt]
    runs = _numbered(phases, warm_up, prompt)
    later = tuple(run.token for run in runs if run.phase is Phase.PREFILL and run.folder > prompt)
    further = [Message.of("dumps.atb.tokens.further_prompts", tokens=later)] if later else []
    parts = (_warm_up(warm_up), reason, *further)
    return TokenTable(tuple(runs), Message.of("dumps.atb.tokens.parts", parts=parts), problem)


def _numbered(phases: Mapping[int, tuple[Phase, ...]], warm_up: Sequence[int], prompt: int) -> list[Run]:
    runs = [
        Run(folder, phase, at, is_warm_up=True)
        for folder in warm_up
        for at, phase in enumerate(phases[folder])
    ]
    shared = 0
    for folder in list(phases)[len(warm_up) :]:
        runs += [Run(folder, phase, folder - prompt + shared + at) for at, phase in enumerate(phases[folder])]
        shared += len(phases[folder]) - 1
    return runs


def _warm_up(folders: Sequence[int]) -> Message:
    if not folders:
        return Message.of("dumps.atb.tokens.no_warm_up")
    return Message.of("dumps.atb.tokens.warm_up", count=len(folders), folders=tuple(folders))
