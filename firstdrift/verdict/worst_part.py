"""Which part is off of a tensor that was joined from those of several nodes."""

from collections.abc import Sequence
from itertools import takewhile

from firstdrift.matching.plan import Joining, TensorPair
from firstdrift.metrics.measurement import Measurement
from firstdrift.verdict.fixed_thresholds import PART_ALONE
from firstdrift.verdict.judgement import Reasons
from firstdrift.verdict.scaled_part import scaled_part
from firstdrift.wording.message import Message


def node_of_worst_part(pair: TensorPair, measured: Measurement) -> str | None:
    """Return the node whose part of a joined tensor is off; None if that is not known, or all are.

    Of several experts it is that which is off most, or the module around its operators where several of these
    are off; of other parts the first that is off. Of statistics it is the only one that explains them.
    """
    nodes, errors = pair.part_nodes, measured.by_part or ()
    if not errors:
        scaled = scaled_part(pair)
        return None if scaled is None or not nodes else nodes[scaled[0]]
    if len(nodes) != len(errors):
        return None
    off = _off(errors)
    if experts := _experts(pair):
        expert = errors.index(max(errors)) % experts
        return around_all([nodes[at] for at in off if at % experts == expert])
    return None if len(off) == len(errors) else nodes[off[0]]


def _experts(pair: TensorPair) -> int:
    """Return how many experts a tensor is joined from; 0 if it is not of experts."""
    whole = (pair.target if pair.golden_parts else pair.golden).shape or (0,)
    parts = pair.golden_parts or pair.target_parts
    match pair.joining:
        case Joining.STACKED:
            return whole[0]
        case Joining.OF_EXPERTS:
            width = (parts[0].shape or (0,))[-1]
            return len(parts) // max(1, whole[-1] // max(1, width))
        case _:
            return 0


def _off(errors: Sequence[float]) -> list[int]:
    """Return the parts beside which all others hardly differ."""
    worst = max(errors, default=0.0)
    return [at for at, error in enumerate(errors) if error * PART_ALONE.value >= worst]


def is_any_part(pair: TensorPair, measured: Measurement) -> bool:
    """Tell whether any of the modules that were fused, or of the experts, may be the one that is off."""
    is_of_parts = pair.joining in {Joining.CONCATENATED, Joining.STACKED} and len(pair.part_nodes) > 1
    return is_of_parts and node_of_worst_part(pair, measured) is None


def worst_part(pair: TensorPair, measured: Measurement) -> Reasons:
    """Say which part is off, and by how much, where the others are not; or that it is not known."""
    node = node_of_worst_part(pair, measured)
    errors = measured.by_part or ()
    if node is not None and not errors and (scaled := scaled_part(pair)) is not None:
        return (Message.of("reason.scaled_part", node=node, factor=scaled[1]),)
    if not errors and is_any_part(pair, measured):
        return (Message.of("reason.any_part", parts=named_parts(pair)),)
    off = _off(errors)
    if node is None or len(off) == len(errors):
        return ()
    size, others = max(errors), max(error for at, error in enumerate(errors) if at not in off)
    return (Message.of("reason.worst_part", node=node, size=size, others=others),)


def named_parts(pair: TensorPair) -> tuple[str, ...]:
    """Return the nodes of the parts; of experts, which may be hundreds, what their names begin with."""
    around = around_all(pair.part_nodes) if pair.joining is Joining.STACKED else None
    return (around,) if around else pair.part_nodes


def around_all(nodes: Sequence[str]) -> str | None:
    """Return the only node, or the name that those of several begin with."""
    if len(nodes) == 1:
        return nodes[0]
    levels = zip(*(node.split(".") for node in nodes), strict=False)
    return ".".join(names[0] for names in takewhile(lambda names: len(set(names)) == 1, levels)) or None
