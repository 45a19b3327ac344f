"""Why a tensor of a matched node has no partner, as far as the two nodes tell."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct

from firstdrift.matching.plan import UnmatchedTensor
from firstdrift.model.names import parse_name
from firstdrift.model.tensor import TensorRecord
from firstdrift.wording.message import Message
from firstdrift.wording.phrases import shape


class MatchedNames(Struct, frozen=True):
    """The nodes of a match.

    Attributes:
        golden: names of the golden nodes; likewise target.
        doubtful: whether it waits for a person to confirm it.
    """

    golden: tuple[str, ...]
    target: tuple[str, ...]
    doubtful: bool = False


def reasons_left_over(
    golden: Sequence[UnmatchedTensor], target: Sequence[UnmatchedTensor], matches: Mapping[int, MatchedNames]
) -> Iterator[tuple[str, UnmatchedTensor, Message]]:
    """Give each tensor that was left over with its side, "golden" or "target", and why it was."""
    by_match = {"golden": _by_match(golden), "target": _by_match(target)}
    for side, other, left in (("golden", "target", golden), ("target", "golden", target)):
        for tensor in left:
            match = matches.get(tensor.match, MatchedNames((), ()))
            yield side, tensor, _why(tensor, match, side, by_match[other][tensor.match])


def _by_match(left: Iterable[UnmatchedTensor]) -> defaultdict[int, list[TensorRecord]]:
    found = defaultdict[int, list[TensorRecord]](list)
    for tensor in left:
        found[tensor.match].append(tensor.record)
    return found


def _why(left: UnmatchedTensor, match: MatchedNames, side: str, others: Sequence[TensorRecord]) -> Message:
    partners = match.target if side == "golden" else match.golden
    if not partners:
        return Message.of("left_over.no_partner")
    if match.doubtful:
        return Message.of("left_over.doubtful", nodes=partners)
    record = left.record
    same_role = [other for other in others if other.role is record.role]
    if not same_role:
        return Message.of("left_over.no_other", nodes=partners, role=Message.of(f"role.{record.role}"))
    said = "left_over.other_operator" if _are_of_other_names(left.node, partners) else "left_over.none_fits"
    return Message.of(said, tensors=tuple(map(_described, same_role)), nodes=partners)


def _are_of_other_names(node: str, partners: Sequence[str]) -> bool:
    """Tell operators of other names, whose arguments need not be the same."""
    own = parse_name(node)
    return own.kind == "api" and any(parse_name(name).path != own.path for name in partners)


def _described(record: TensorRecord) -> Message:
    if record.shape is None or not record.is_tensor:
        return Message.of("left_over.argument", label=record.label)
    return Message.of("left_over.tensor", label=record.label, shape=shape(record.shape))
