"""What is known of a sequence on one side, and what was wrong with what lies beside it."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from firstdrift.wording.message import Message

Floats: TypeAlias = npt.NDArray[np.float64]
Integers: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]


class TokenSequence(Struct, frozen=True, kw_only=True):
    """The tokens that were generated, and how probable one side held each to be.

    Attributes:
        file: name of its file.
        line: line of it, or row of a Parquet file, from 1.
        names: what it is called, by the field that says so.
        prompt: what tells its prompt from others; empty if nothing does.
        prompt_length: tokens of the prompt; None if it is not known.
        tokens: ids of the generated tokens; None if they are not known.
        texts: the same as text, where the file has it.
        log_probs: one for each generated token, NaN where there is none.
        missing: where there is none.
        counts: where the mask of the file lets it count.
        experts: of each token and layer those that were chosen; None if they were not recorded.
        field: which field had the log-probabilities.
    """

    file: str
    line: int
    names: Mapping[str, str]
    prompt: str
    prompt_length: int | None
    tokens: Integers | None
    texts: tuple[str, ...] | None
    log_probs: Floats
    missing: Flags
    counts: Flags
    experts: npt.NDArray[Any] | None
    field: str

    def __len__(self) -> int:
        """Return how many tokens were generated."""
        return len(self.log_probs)


class RowProblem(Struct, frozen=True):
    """A line, row or file that could not be used, and why."""

    file: str
    line: int | None
    reason: Message


class Side(Struct, frozen=True, kw_only=True):
    """All that the files of one side say.

    Attributes:
        path: what was opened.
        files: how many files it is.
        sequences: in the order of the files.
        problems: what could not be used.
        problem_count: how many; only the first are kept.
        fields: the fields that the log-probabilities were read from.
    """

    path: str
    files: int
    sequences: tuple[TokenSequence, ...]
    problems: tuple[RowProblem, ...]
    problem_count: int
    fields: tuple[str, ...]
