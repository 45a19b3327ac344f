"""Which token ids a slice was given: by them a row is told from others.

model.embed_tokens   input.0          [2, 9]    what the first table of words was given
model                input.input_ids  [18]      where no inputs of modules were recorded: by its name
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from firstdrift.groups import gathered
from firstdrift.model.node import BACKWARD, Node
from firstdrift.model.tensor import INPUT, TensorRecord, is_floating
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.properties import is_about_positions
from firstdrift.operators.recognise import kind_of

_NAMES: Final = frozenset(("input_ids", "token_ids", "tokens"))
"""What programs call the token ids that they give to a model."""

_ROWS: Final = (1, 2)
"""Dimensions of token ids: flat, or sequences and their length."""

_LOOKUP: Final = OpKind.LOOKUP
"""By itself, as it is asked of every node: Python 3.11 looks up slowly what an enum holds."""


def token_ids(nodes: Iterable[Node]) -> TensorRecord | None:
    """Return the token ids of a slice; None if none were recorded, or the model was called several times."""
    nodes = [node for node in nodes if node.direction is not BACKWARD]
    given = gathered((node.path, ids) for node in filter(_embeds, nodes) for ids in whole_numbers(node)[:1])
    for calls in given.values():
        return calls[0] if len(calls) == 1 and len(calls[0].shape or ()) in _ROWS else None
    return next(_by_name(nodes), None)


def _by_name(nodes: Iterable[Node]) -> Iterator[TensorRecord]:
    numbers = chain.from_iterable(map(whole_numbers, nodes))
    return (each for each in numbers if each.key.rpartition(".")[2] in _NAMES)


def whole_numbers(node: Node) -> Sequence[TensorRecord]:
    """Return the tensors without fractions that a node was given, truth values included."""
    return [*_whole(node.records(INPUT))]


def _whole(records: Iterable[TensorRecord]) -> Iterator[TensorRecord]:
    return (each for each in records if each.is_tensor and each.shape and not is_floating(each.dtype))


def _embeds(node: Node) -> bool:
    return kind_of(node) is _LOOKUP and not is_about_positions(node.type_name)


def behind_rows(shape: tuple[int, ...] | None, rows: tuple[int, ...]) -> tuple[int, ...] | None:
    """Return the sizes of what each token has, of a tensor with a row for each; None of any other.

    Args:
        shape: that of the tensor.
        rows: that of the token ids: flat, or sequences and their length.
    """
    if not shape or shape[: len(rows)] != rows:
        is_flat = shape and len(rows) == max(_ROWS) == len(shape) and shape[0] == rows[0] * rows[1]
        return shape[1:] if shape and is_flat else None
    return shape[len(rows) :]
