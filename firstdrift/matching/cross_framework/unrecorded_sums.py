"""What the sums of a slice add, where their inputs were not recorded.

torch   x + self_attn(norm(x)), x + mlp(norm(x))           in the code of a module: no operator of its own
ATB     1_ElewiseOperation, 3_ElewiseOperation             operators, of which only outputs were dumped

A sum adds the sum before it (or what was looked up first) and the operator right before it. Where one of the
two has no partner and is a sum itself, what that one adds stands for it:

    3_ElewiseOperation = 1_ElewiseOperation + down_proj = (sum of the layer before + o_proj) + down_proj

That is what order tells; whether it is so, values have to confirm.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from firstdrift.matching.cross_framework.layer_ops import Line, Op, first_input, first_output, lay_out
from firstdrift.matching.cross_framework.thresholds import MOST_ADDENDS
from firstdrift.matching.plan import NodeMatch
from firstdrift.matching.tree import SliceTree
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.recognise import kind_of


def add_operands(matches: list[NodeMatch], trees: Sequence[SliceTree], lines: Sequence[Line] | None) -> None:
    """Tell the matches of sums without recorded inputs what they add, in place.

    Args:
        matches: those of the golden and the target slice.
        trees: golden, target.
        lines: the two slices as lines of operators, if they are known already.
    """
    operands: dict[str, tuple[str, ...]] = {}
    for place, tree in enumerate(trees):
        if lines is not None or _has_bare_sums(tree):
            operands |= _operands(tree, lines[place] if lines is not None else lay_out(tree))
    matched = {name for match in matches for side in (match.golden, match.target) for name in side}
    for place, match in enumerate(matches if operands else ()):
        name = (match.target or match.golden)[0]
        if name in operands:
            matches[place] = replace(match, operands=_addends(name, operands, matched))


def _addends(name: str, operands: Mapping[str, Sequence[str]], matched: AbstractSet[str]) -> tuple[str, ...]:
    """Return what a sum adds: its operands, or what these add if they have no partners, up to so many."""
    added = list(operands[name])
    while len(added) < MOST_ADDENDS:
        sums = (place for place, one in enumerate(added) if one in operands and one not in matched)
        place = next(sums, None)
        if place is None:
            break
        added[place : place + 1] = operands[added[place]]
    return tuple(added)


def _has_bare_sums(tree: SliceTree) -> bool:
    return any(
        kind_of(node) is OpKind.ADD
        and first_output(tree, index) is not None
        and first_input(tree, index) is None
        for index, node in enumerate(tree.nodes)
    )


def _operands(tree: SliceTree, line: Line) -> dict[str, tuple[str, ...]]:
    """Return of each sum without recorded inputs what it adds: the sum before it and the last operator."""
    found: dict[str, tuple[str, ...]] = {}
    residual: Op | None = None
    before: Op | None = None
    for op in line.ops:
        fits = residual is not None and before is not None and residual.width == before.width == op.width
        if op.kind is OpKind.ADD and fits and residual is not before and first_input(tree, op.node) is None:
            names = [tree.nodes[one.node].name for one in (residual, before) if one is not None]
            found[tree.nodes[op.node].name] = tuple(names)
        if op.kind in (OpKind.ADD, OpKind.LOOKUP):
            residual = op
        if op.kind is not OpKind.STORE:
            before = op
    return found
