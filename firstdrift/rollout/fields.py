"""What engines and trainers call things, and the sequences in a row of theirs.

| writer                     | log-probabilities                     | tokens                    |
| -------------------------- | ------------------------------------- | ------------------------- |
| verl                       | rollout_log_probs, old_log_probs      | responses                 |
| slime                      | rollout_log_probs, log_probs          | the end of tokens         |
| OpenAI, chat completions   | choices[].logprobs.content[].logprob  | content[].token           |
| OpenAI, completions        | choices[].logprobs.token_logprobs     | choices[].logprobs.tokens |
| vLLM, RequestOutput        | outputs[].logprobs[]{id: {logprob}}   | outputs[].token_ids       |
| SGLang, /generate          | meta_info.output_token_logprobs[][0]  | [][1], text in [][2]      |
| batches of OpenAI's form   | as above, in response.body            |                           |

Whatever lies below a field of log-probabilities may have any of these forms.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from firstdrift.errors import RolloutUnreadableError
from firstdrift.rollout.sequences import Flags, Floats, Integers, TokenSequence
from firstdrift.rollout.thresholds import ABOVE_ZERO
from firstdrift.wording.message import Argument, Message

SideName: TypeAlias = Literal["rollout", "trainer"]
Row: TypeAlias = Mapping[str, Any]

_ROLLOUT: Final = (
    "rollout_log_probs",
    "rollout_logprobs",
    "rollout_per_token_logps",
    "sampling_per_token_logps",
    "generation_logprobs",
    "inference_logprobs",
    "output_token_logprobs",
)
_TRAINER: Final = (
    "old_log_probs",
    "old_logprobs",
    "old_per_token_logps",
    "train_log_probs",
    "trainer_log_probs",
    "actor_log_probs",
    "prev_logprobs",
    "per_token_logps",
)
_EITHER: Final = ("log_probs", "logprobs", "token_logprobs", "completion_logprobs", "response_logprobs")
LOG_PROBS: Final[Mapping[SideName, tuple[str, ...]]] = {
    "rollout": (*_ROLLOUT, *_EITHER, *_TRAINER),
    "trainer": (*_TRAINER, *_EITHER, *_ROLLOUT),
}
"""Fields of log-probabilities, those first that a side is most likely to mean."""

TOKENS: Final = ("responses", "response_ids", "completion_ids", "completion_token_ids", "response_token_ids")
TOKENS_OR_WHOLE: Final = ("token_ids", "output_ids", "tokens", "input_ids")
"""Of slime, `tokens` begins with those of the prompt."""
PROMPT_TOKENS: Final = ("prompt_token_ids", "prompts", "prompt_ids")
PROMPT_TEXT: Final = ("prompt", "input", "messages", "question")
MASKS: Final = ("response_mask", "loss_mask", "completion_mask")
EXPERTS: Final = ("routed_experts", "rollout_routed_experts")
IDS: Final = ("request_id", "custom_id", "sample_id", "sample_index", "rid", "id", "index")
GROUPS: Final = ("uid", "prompt_id", "prompt_index", "group_index", "group_id")
"""Fields that several sequences of one prompt may share."""
STEP: Final = "step"

SUB_ROWS: Final = ("choices", "outputs")
_AS_ID: Final = "token_id:"
"""vLLM writes tokens so where it is asked to return ids in the place of texts."""
_NO_NUMBERS: Final = frozenset((bool, str, bytes))
"""Of these numpy would make numbers."""
_NOT_FINITE: Final = frozenset(("NaN", "Infinity", "-Infinity"))
"""How JSON has what it has no numbers for."""
_AXES: Final = (2, 3)
_TEXT: Final = 2


class _Values(NamedTuple):
    """Log-probabilities as they stand in a row, and the tokens that stand beside them."""

    log_probs: list[Any]
    tokens: list[Any] | None = None
    texts: list[Any] | None = None


def sequences_of(row: object, side: SideName, file: str, line: int) -> Iterator[TokenSequence]:
    """Yield the sequences of a row.

    Raises:
        RolloutUnreadableError: it is none, or holds what makes no sense.
    """
    if not isinstance(row, Mapping):
        raise _unfit("not_an_object")
    body = _inner(row, "response", "body") or row
    inner = next((name for name in SUB_ROWS if isinstance(body.get(name), list)), None)
    if inner is None:
        yield _sequence(_chain(row, body), side, file, line)
        return
    for number, each in enumerate(body[inner]):
        if not isinstance(each, Mapping):
            raise _unfit("not_an_object")
        above = _chain({name: value for name, value in row.items() if name != "response"}, body)
        numbered: dict[str, Any] = {
            name: f"{above[name]}/{each.get('index', number)}" for name in IDS if name in above
        }
        yield _sequence({**above, **each, **numbered}, side, file, line)


def _sequence(row: Row, side: SideName, file: str, line: int) -> TokenSequence:
    row = {**(_inner(row, "meta_info") or {}), **row}
    field, values = _log_probs(row, side)
    log_probs, missing = _numbers(field, values.log_probs)
    tokens = _tokens(row, values, len(log_probs))
    prompt_tokens = _first(row, PROMPT_TOKENS)
    has_prompt = isinstance(prompt_tokens, list)
    return TokenSequence(
        file=file,
        line=line,
        names={name: str(row[name]) for name in (STEP, *IDS, *GROUPS) if _is_name(row.get(name))},
        prompt=_prompt_key(row),
        prompt_length=len(prompt_tokens) if has_prompt else _prompt_length(row, len(log_probs)),
        tokens=tokens,
        texts=_texts(values.texts, len(log_probs)),
        log_probs=log_probs,
        missing=missing,
        counts=_mask(row, len(log_probs)),
        experts=_experts(row),
        field=field,
    )


def _log_probs(row: Row, side: SideName) -> tuple[str, _Values]:
    for field in LOG_PROBS[side]:
        if (found := row.get(field)) is not None:
            ids = _first(row, (*TOKENS, *TOKENS_OR_WHOLE))
            return field, _values(field, found, ids if isinstance(ids, list) else None)
    raise _unfit("no_log_probs", fields=LOG_PROBS[side][:3])


def _values(field: str, found: object, ids: list[Any] | None) -> _Values:
    """Take log-probabilities in whatever form they come."""
    if isinstance(found, Mapping):
        if isinstance(content := found.get("content"), list):
            return _values(field, content, ids)
        if isinstance(plain := found.get("token_logprobs"), list):
            return _Values(plain, None, found.get("tokens"))
    if not isinstance(found, list):
        raise _unfit("no_list", field=field)
    if not found or not isinstance(found[0], Mapping | list | tuple):
        return _Values(found)
    try:
        return _of_objects(found, ids) if isinstance(found[0], Mapping) else _of_triples(found)
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise _unfit("no_list", field=field) from error


def _of_triples(found: list[Any]) -> _Values:
    """Take SGLang's [log-probability, id, text], whose text may be missing."""
    has_texts = len(found[0]) > _TEXT and found[0][_TEXT] is not None
    texts = [one[_TEXT] for one in found] if has_texts else None
    return _Values([one[0] for one in found], [one[1] for one in found], texts)


def _of_objects(found: list[Any], ids: list[Any] | None) -> _Values:
    if "logprob" not in found[0]:
        return _of_dictionaries(found, ids)
    return _Values([one["logprob"] for one in found], None, [one.get("token") for one in found])


def _of_dictionaries(found: list[Any], ids: list[Any] | None) -> _Values:
    """Take vLLM's {id: {"logprob": …, "decoded_token": …}}, of which the one that was sampled counts."""
    chosen: list[Any] = [next(iter(one), None) for one in found] if ids is None else list(map(str, ids))
    if len(chosen) != len(found) or (ids is None and any(len(one) > 1 for one in found)):
        raise _unfit("sampled_not_known")
    picked = [one[name] for one, name in zip(found, chosen, strict=True)]
    texts = [one.get("decoded_token") for one in picked]
    return _Values([one["logprob"] for one in picked], list(map(int, chosen)), texts)


def _numbers(field: str, values: list[Any]) -> tuple[Floats, Flags]:
    if any(type(value) in _NO_NUMBERS and value not in _NOT_FINITE for value in values):
        raise _unfit("no_numbers", field=field)
    try:
        found = np.array(values, np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise _unfit("no_numbers", field=field) from error
    if found.ndim != 1:
        raise _unfit("no_numbers", field=field)
    above = found > ABOVE_ZERO
    if above.any():
        raise _unfit("above_zero", field=field, value=float(found[above][0]), token=int(above.argmax()))
    return found, np.fromiter((value is None for value in values), np.bool_, len(values))


def _tokens(row: Row, values: _Values, length: int) -> Integers | None:
    """Return the ids of the generated tokens; those of a prompt may stand before them."""
    found: Any = values.tokens or _first(row, TOKENS) or _last_tokens(row, length) or _as_ids(values.texts)
    if found is None or (isinstance(found, list) and found and isinstance(found[0], str)):
        return None
    ids = _integers(found, "tokens")
    if ids.ndim != 1 or len(ids) != length:
        raise _unfit("other_number", tokens=ids.size, log_probs=length)
    return ids


def _texts(found: object, length: int) -> tuple[str, ...] | None:
    """Return the tokens as text; None if one of them has none. Equal ones are one text in memory."""
    if not isinstance(found, list) or len(found) != length or not all(isinstance(one, str) for one in found):
        return None
    return tuple(sys.intern(str(text)) for text in found)


def _last_tokens(row: Row, length: int) -> Any:  # noqa: ANN401 (whatever the file holds)
    found = _first(row, TOKENS_OR_WHOLE)
    return found[-length:] if isinstance(found, list) and length else found


def _as_ids(texts: object) -> list[int] | None:
    if not isinstance(texts, list) or not texts or not str(texts[0]).startswith(_AS_ID):
        return None
    try:
        return [int(str(text).removeprefix(_AS_ID)) for text in texts]
    except ValueError as error:
        raise _unfit("no_ids", field="tokens") from error


def _integers(found: object, what: str) -> Integers:
    if _holds_text(found):  # of which numpy would make as many of the longest as there are numbers
        raise _unfit("no_ids", field=what)
    try:
        ids = np.array(found)
    except (ValueError, TypeError, OverflowError) as error:
        raise _unfit("no_ids", field=what) from error
    if ids.size and (ids.dtype.kind not in "iu" or ids.max() > np.iinfo(np.int64).max):
        raise _unfit("no_ids", field=what)
    return ids.astype(np.int64)


def _holds_text(found: object) -> bool:
    if not isinstance(found, list):
        return isinstance(found, str | bytes)
    kinds = set(map(type, found))
    return not kinds.isdisjoint((str, bytes)) or (list in kinds and any(map(_holds_text, found)))


def _mask(row: Row, length: int) -> Flags:
    found = _first(row, MASKS)
    if found is None:
        return np.ones(length, np.bool_)
    try:
        mask = np.atleast_1d(np.array(found, np.float64))[max(0, np.size(found) - length) :]
    except (ValueError, TypeError, OverflowError) as error:
        raise _unfit("no_mask") from error
    if mask.shape != (length,):
        raise _unfit("no_mask")
    counts: Flags = mask != 0
    return counts


def _experts(row: Row) -> Any:  # noqa: ANN401 (an array of any integers)
    found = _first(row, EXPERTS)
    if found is None:
        return None
    if isinstance(found, str):
        raise _unfit("experts_as_text")
    ids = _integers(found, EXPERTS[0])
    if ids.ndim not in _AXES:
        raise _unfit("experts_shape", axes=ids.ndim)
    small = ids.astype(np.int16) if ids.size and ids.min() >= 0 and ids.max() < 2**15 else ids
    return small if small.ndim == _AXES[-1] else small[:, None, :]


def _prompt_key(row: Row) -> str:
    field = next((name for name in (*PROMPT_TOKENS, *PROMPT_TEXT) if row.get(name) is not None), None)
    return "" if field is None else f"{field}:{digest(repr(row[field]).encode())}"


def _prompt_length(row: Row, length: int) -> int | None:
    whole = _first(row, TOKENS_OR_WHOLE)
    return len(whole) - length if isinstance(whole, list) and len(whole) > length else None


def digest(data: bytes) -> str:
    """Return what stands for data that is long."""
    return blake2b(data, digest_size=8).hexdigest()


def _first(row: Row, names: Sequence[str]) -> Any:  # noqa: ANN401 (whatever the file holds)
    return next((row[name] for name in names if row.get(name) is not None), None)


def _inner(row: Row, *names: str) -> Row | None:
    found: Any = row
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else None


def _chain(outer: Row, inner: Row) -> dict[str, Any]:
    return {**inner, **{name: value for name, value in outer.items() if name in IDS or name not in inner}}


def _is_name(value: object) -> bool:
    return isinstance(value, str | int) and not isinstance(value, bool)


def _unfit(which: str, **arguments: Argument) -> RolloutUnreadableError:
    return RolloutUnreadableError(Message.of(f"rollout.row.{which}", **arguments))
