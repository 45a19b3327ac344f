"""Read the log-probabilities of a side: JSON lines and Parquet, a file or a folder.

rollout/1.jsonl ─▶ line ─▶ object ─▶ sequences ─┐
rollout/2.jsonl ─▶ line ─▶ damaged ─▶ problem   ├─▶ Side
rollout/3.parquet ─▶ batch ─▶ row ─▶ sequences ─┘

A line at a time is in memory as objects; what is kept of it are arrays. A line that cannot be used spoils
itself alone, and is kept as a problem with its file and number. Parquet is read by pyarrow, which is larger
than all else that firstdrift needs together: it is the extra `firstdrift[parquet]`.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from firstdrift.errors import FirstdriftError, LimitError, RolloutUnreadableError, SettingsError
from firstdrift.files import open_regular
from firstdrift.rollout.fields import (
    EXPERTS,
    GROUPS,
    IDS,
    LOG_PROBS,
    MASKS,
    PROMPT_TEXT,
    PROMPT_TOKENS,
    STEP,
    SUB_ROWS,
    TOKENS,
    TOKENS_OR_WHOLE,
    SideName,
    sequences_of,
)
from firstdrift.rollout.sequences import RowProblem, Side, TokenSequence
from firstdrift.rollout.sources import PARQUET_SUFFIXES, files_of, why_not
from firstdrift.rollout.thresholds import MOST_EXPERTS, MOST_LINE, MOST_SEQUENCES, MOST_TEXT, MOST_TOKENS
from firstdrift.wording.message import Message, verbatim

MOST_PROBLEMS: Final = 50
"""So many problems are kept; all are counted."""

_MARK: Final = b"PAR1"
_BATCH: Final = 8
_COLUMNS: Final = frozenset(
    {
        *(*LOG_PROBS["rollout"], *TOKENS, *TOKENS_OR_WHOLE, *PROMPT_TOKENS, *PROMPT_TEXT, *MASKS, *EXPERTS),
        *(*IDS, *GROUPS, *SUB_ROWS, STEP, "response", "meta_info"),
    }
)
"""Of a Parquet file, no other columns are read."""

_decode = msgspec.json.Decoder().decode


def read_side(path: Path, side: SideName, within: Sequence[Path] | None = None) -> Side:
    """Read what one side wrote.

    Raises:
        RolloutUnreadableError: there is nothing to read, and which file and line is the first reason.
        LimitError: it is more than is held in memory.
        SettingsError: pyarrow is missing.
    """
    files = files_of(path, within)
    sequences: list[TokenSequence] = []
    problems: list[RowProblem] = []
    count = 0
    held = _Held()
    for file in files:
        for found in _sequences(file, side, within):
            if isinstance(found, RowProblem):
                count += 1
                problems += [found] if len(problems) < MOST_PROBLEMS else []
            else:
                held.add(found, path)
                sequences.append(found)
    if not sequences:
        first = next(iter(problems), None)
        reason = Message.of("rollout.empty") if first is None else placed(first)
        raise RolloutUnreadableError(reason, path=path)
    return Side(
        path=str(path),
        files=len(files),
        sequences=tuple(sequences),
        problems=tuple(problems),
        problem_count=count,
        fields=tuple(dict.fromkeys(each.field for each in sequences)),
    )


def placed(problem: RowProblem) -> Message:
    """Say what is wrong, and in which line of which file."""
    if problem.line is None:
        return Message.of("rollout.in_file", file=problem.file, reason=problem.reason)
    return Message.of("rollout.in_line", file=problem.file, line=problem.line, reason=problem.reason)


class _Held:
    """Counts what is in memory, and refuses what is too much."""

    def __init__(self) -> None:
        self._left = {
            "sequences": MOST_SEQUENCES,
            "tokens": MOST_TOKENS,
            "experts": MOST_EXPERTS,
            "characters": MOST_TEXT,
        }

    def add(self, found: TokenSequence, path: Path) -> None:
        experts = 0 if found.experts is None else found.experts.size
        texts = (*(found.texts or ()), found.prompt, *found.names.values())
        sizes = {"sequences": 1, "tokens": len(found), "experts": experts, "characters": sum(map(len, texts))}
        for what, size in sizes.items():
            self._left[what] -= size
            if self._left[what] < 0:
                hint = Message.of("rollout.split")
                raise LimitError(Message.of(f"rollout.many_{what}", most=MOST_TEXT), path=path, hint=hint)


def _sequences(
    file: Path, side: SideName, within: Sequence[Path] | None
) -> Iterator[TokenSequence | RowProblem]:
    try:
        with open_regular(file, within=within) as stream:
            is_parquet = stream.read(len(_MARK)) == _MARK or file.suffix.lower() in PARQUET_SUFFIXES
            stream.seek(0)
            for line, row in _parquet_rows(stream) if is_parquet else _json_rows(stream):
                yield from _of_row(row, side, file.name, line)
    except OSError as error:
        yield RowProblem(file.name, None, why_not(error))
    except RolloutUnreadableError as error:
        yield RowProblem(file.name, None, error.message)


def _of_row(row: object, side: SideName, file: str, line: int) -> Iterator[TokenSequence | RowProblem]:
    if isinstance(row, Message):
        yield RowProblem(file, line, row)
        return
    try:
        yield from sequences_of(row, side, file, line)
    except FirstdriftError as error:
        yield RowProblem(file, line, error.message)
    except RecursionError:
        yield RowProblem(file, line, Message.of("rollout.row.deep"))


def _json_rows(stream: BinaryIO) -> Iterator[tuple[int, object]]:
    number = 0
    while line := stream.readline(MOST_LINE + 1):
        number += 1
        if len(line) > MOST_LINE:
            while line and not line.endswith(b"\n"):
                line = stream.readline(MOST_LINE)
            yield number, Message.of("rollout.row.long_line", mebibytes=MOST_LINE >> 20)
        elif line.strip():
            yield number, _object(line)


def _object(line: bytes) -> object:
    """Decode a line; Python's own JSON writes NaN and Infinity as they are, which is not in the standard."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return Message.of("rollout.row.no_json", why=verbatim(str(error)))


def _parquet_rows(stream: BinaryIO) -> Iterator[tuple[int, Any]]:
    try:
        from pyarrow import parquet
    except ImportError as error:
        hint = Message.of("rollout.install_parquet")
        raise SettingsError(Message.of("rollout.no_parquet"), hint=hint) from error
    number = 0
    # pyarrow has many errors, some of them ValueErrors and some OSErrors; to our callers they are one.
    try:
        opened = parquet.ParquetFile(stream)
        columns = [name for name in opened.schema_arrow.names if name in _COLUMNS]
        for batch in opened.iter_batches(batch_size=_BATCH, columns=columns, use_threads=False):
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except MemoryError:
        raise
    except Exception as error:
        why = verbatim(str(error).partition("\n")[0][:300])
        raise RolloutUnreadableError(
            Message.of("rollout.row.no_parquet_file", row=number, why=why)
        ) from error
