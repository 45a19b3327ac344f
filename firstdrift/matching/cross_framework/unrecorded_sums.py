"""What the sums of a slice add, where their inputs were not recorded.

torch   x + self_attn(norm(x)), x + mlp(norm(x))           in the code of a module: no operator of its own
ATB     1_ElewiseOperation, 3_ElewiseOperation             operators, of which only outputs were dumped

A sum adds the sum before it (or what was looked up first) and the operator right before it. Where one of the
two has no partner and is a sum itself, what that one adds stands for it:

    3_ElewiseOperation = 1_ElewiseOperation + down_proj = (sum of the layer before + o_proj) + down_proj

That is what order tells; whether it is so, values have to confirm.
"""

from collections.abc import Sequence
from itertools import chain

from msgspec.structs import replace

from firstdrift.matching.cross_framework.layer_ops import Line, Op, first_input, first_output, lay_out
from firstdrift.matching.cross_framework.thresholds import MOST_ADDENDS
from firstdrift.matching.plan import NodeMatch
from firstdrift.matching.tree import SliceTree
from firstdrift.model.tensor import INPUT
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.recognise import kind_of


def add_operands(matches: list[NodeMatch], trees: Sequence[SliceTree], lines: Sequence[Line] | None) -> None:
    """Tell the matches of sums without recorded inputs what they add, in place.

    Args:
        matches: those of the golden and the target slice.
        trees: golden, target.
        lines: the two as lines of operators, if they were laid out.
    """
    golden, target = map(_operands, trees, lines or (None, None))
    operands = golden | target
    matched = chain.from_iterable((*match.golden, *match.target) for match in matches)
    hidden = operands.keys() - set(matched)
    for place, match in enumerate(matches):
        name = (match.target or match.golden)[0]
        if name in operands:
            added = operands[name]
            # What was added last is no sum: only the first addend can stand for what it adds itself.
            while added[0] in hidden and len(added) < MOST_ADDENDS:
                added = (*operands[added[0]], *added[1:])
            matches[place] = replace(match, operands=added)


def _operands(tree: SliceTree, line: Line | None) -> dict[str, tuple[str, ...]]:
    """Return of each sum without recorded inputs what it adds: the sum before it and the last operator."""
    found: dict[str, tuple[str, ...]] = {}
    residual: list[Op] = []
    before: list[Op] = []
    for op in (line or lay_out(tree)).ops if _has_bare_sums(tree) else ():
        same = [tree.nodes[one.node].name for one in (*residual, *before) if one.width == op.width]
        if op.kind is OpKind.ADD and len(set(same)) > 1 and first_input(tree, op.node) is None:
            found[tree.nodes[op.node].name] = tuple(same)
        if op.kind in (OpKind.ADD, OpKind.LOOKUP):
            residual = [op]
        if op.kind is not OpKind.STORE:
            before = [op]
    return found


def _has_bare_sums(tree: SliceTree) -> bool:
    """Tell whether there are such sums, before the whole slice is laid out."""
    gives_first = (
        at
        for at, node in enumerate(tree.nodes)
        if node.tensors and not (node.tensors[0].role is INPUT and node.tensors[0].is_tensor)
    )
    return any(
        kind_of(tree.nodes[at]) is OpKind.ADD
        and first_output(tree, at) is not None
        and first_input(tree, at) is None
        for at in gives_first
    )
