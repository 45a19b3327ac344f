"""One tree of two runs: matched nodes in one row, unmatched ones in their place.

golden          target                     rows
mlp             feed_forward               mlp ~ feed_forward
├─ linear.0     ├─ linear.0        ─▶      ├─ linear.0
└─ linear.1     ├─ mul.7                   ├─ mul.7          (unmatched, target)
                └─ linear.1                └─ linear.1
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from firstdrift.groups import gathered
from firstdrift.matching.plan import SlicePlan
from firstdrift.model.names import PARAMETERS_GRAD, parse_name
from firstdrift.model.node import API, BACKWARD, Direction, Node, NodeKind
from firstdrift.model.slice import Slice
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.properties import embeds
from firstdrift.operators.recognise import kind_of_label, kind_of_type


class TreeRow(Struct, frozen=True, gc=False):
    """One row of the tree of a pair of slices; rows are kept in pre-order (parents first).

    Attributes:
        index: position in pre-order, from 0.
        parent: index of the row above; None at the top.
        last: index of the last row below it (its own index if there is none).
        depth: 0 at the top.
        order: position in execution order among all rows, children before parents.
        label: short name: last part of the path, or the operator with its call number.
        kind: model, module or api.
        type_name: class or operator (target's, if there is a target and it tells its class); empty where
            neither dump tells it.
        direction: forward, backward or none.
        golden: names of the golden nodes; empty if there is none.
        target: names of the target nodes; empty if there is none.
        match: index of the match in the plan, which says how it was found; None if unmatched.
        path: dotted module path of the innermost module around it (its own for a module).
        micro_step: which micro batch, where the dump tells.
    """

    index: int
    parent: int | None
    last: int
    depth: int
    order: int
    label: str
    kind: NodeKind
    type_name: str
    direction: Direction
    golden: tuple[str, ...]
    target: tuple[str, ...]
    match: int | None
    path: str | None
    micro_step: int | None

    @property
    def side(self) -> str:
        """The dump that has it, of a row without a partner."""
        return "target" if self.target else "golden"


def classes_of(row: TreeRow) -> tuple[str, str] | None:
    """Return the class of a module in golden and in the target; None where one of them is not told."""
    if row.kind is NodeKind.API or len(row.golden) != 1 or len(row.target) != 1:
        return None
    golden, target = (parse_name(side[0]).type_name for side in (row.golden, row.target))
    return (golden, target) if golden and target else None


def rows_by_match(rows: Iterable[TreeRow]) -> dict[int, TreeRow]:
    """Return the rows that have a partner, by their matches."""
    return {row.match: row for row in rows if row.match is not None}


def kind_of_row(row: TreeRow) -> OpKind:
    """Say what a row does, as its class tells, or the last part of its name where no class is known."""
    if row.type_name:
        return kind_of_type(row.type_name)
    return kind_of_label(last_name(row))


def last_name(row: TreeRow) -> str:
    """Return the last part of the name of a module, or of the module around an operator."""
    return (row.path or "").rpartition(".")[2]


def is_embedding(row: TreeRow) -> bool:
    """Tell whether a row is called an embedding: of tokens, or of positions."""
    if row.type_name:
        return embeds(row.type_name)
    return kind_of_row(row) is OpKind.LOOKUP


def holds_gradients(row: TreeRow) -> bool:
    """Tell whether a row stands for the gradients of a module's parameters."""
    return row.type_name == PARAMETERS_GRAD


_LAYER = re.compile(r"(^|\.)\d+$")


def layer_rows(rows: Sequence[TreeRow]) -> set[int]:
    """Find the outermost numbered modules ("model.layers.7") of the forward pass; return their indexes."""
    layers: set[int] = set()
    behind = -1  # the last row below the layer met last
    for row in rows:
        is_forward_module = row.kind is not API and row.direction is not BACKWARD
        if row.index > behind and is_forward_module and _LAYER.search(row.path or ""):
            layers.add(row.index)
            behind = row.last
    return layers


def build_rows(golden: Slice, target: Slice, plan: SlicePlan) -> tuple[TreeRow, ...]:
    """Lay the two trees of a pair of slices over each other.

    Rows hang where their target node hangs; unmatched golden nodes hang below the row of their golden
    parent, after the golden node that ran before them. It is the other way round where the golden dump
    tells in which order its nodes ran, and of the target dump only names do, or only golden names have parts.
    """
    if not target.tells_order and (golden.tells_order or (_is_tree(golden) and not _is_tree(target))):
        rows = _lay_over(target, golden, _turned(plan))
        return tuple(replace(row, golden=row.target, target=row.golden) for row in rows)
    return _lay_over(golden, target, plan)


def _is_tree(dumped: Slice) -> bool:
    return any(node.parent is not None for node in dumped.nodes)


def _turned(plan: SlicePlan) -> SlicePlan:
    """Let golden and target nodes change sides."""
    return replace(
        plan,
        matches=tuple(replace(match, golden=match.target, target=match.golden) for match in plan.matches),
        unmatched_golden=plan.unmatched_target,
        unmatched_target=plan.unmatched_golden,
    )


def _lay_over(golden: Slice, target: Slice, plan: SlicePlan) -> tuple[TreeRow, ...]:
    drafts = _drafts(golden, target, plan)
    drafts.sort(key=lambda draft: draft.position)
    row_of_golden = {name: index for index, draft in enumerate(drafts) for name in draft.golden}
    row_of_target = {name: index for index, draft in enumerate(drafts) for name in draft.target}
    parents = [_row_around(draft.node, row_of_target if draft.target else row_of_golden) for draft in drafts]
    return _in_pre_order(drafts, parents)


def rows_of_nodes(nodes: Sequence[Node]) -> tuple[TreeRow, ...]:
    """Lay the nodes of one slice, given in execution order, out as rows: each has a target alone."""
    row_of = {node.name: index for index, node in enumerate(nodes)}
    drafts = [_Draft(node, (), (node.name,), None, (node.order, 0, 0)) for node in nodes]
    return _in_pre_order(drafts, [_row_around(node, row_of) for node in nodes])


def _row_around(node: Node, row_of: Mapping[str, int]) -> int | None:
    return None if node.parent is None else row_of.get(node.parent)


class _Draft(Struct):
    """A row before its place in the tree is known; `node` is the target's if there is one."""

    node: Node
    golden: tuple[str, ...]
    target: tuple[str, ...]
    match: int | None
    position: tuple[int, int, int]


def _drafts(golden: Slice, target: Slice, plan: SlicePlan) -> list[_Draft]:
    golden_nodes = {node.name: node for node in golden.nodes}
    target_nodes = {node.name: node for node in target.nodes}
    drafts = []
    order_of_partner: dict[str, int] = {}
    golden_alone: dict[str, int | None] = dict.fromkeys(plan.unmatched_golden)
    for index, match in enumerate(plan.matches):
        if not match.target:
            golden_alone[match.golden[0]] = index
            continue
        node = target_nodes[match.target[0]]
        if not node.type_name and match.golden:
            node = replace(node, type_name=golden_nodes[match.golden[0]].type_name)
        position = max(target_nodes[name].order for name in match.target)
        order_of_partner.update(dict.fromkeys(match.golden, position))
        drafts.append(_Draft(node, match.golden, match.target, index, (position, 0, 0)))
    for name in plan.unmatched_target:
        node = target_nodes[name]
        drafts.append(_Draft(node, (), (name,), None, (node.order, 0, 0)))
    anchor = -1
    for node in golden.nodes:
        anchor = order_of_partner.get(node.name, anchor)
        if node.name in golden_alone:
            place = (anchor, 1, node.order)
            drafts.append(_Draft(node, (node.name,), (), golden_alone[node.name], place))
    return drafts


def _in_pre_order(drafts: list[_Draft], parents: list[int | None]) -> tuple[TreeRow, ...]:
    children = gathered((parent, child) for child, parent in enumerate(parents))
    visited: list[tuple[int, int | None, int]] = []  # (draft, index of the parent row, depth)
    stack: list[tuple[int, int | None, int]] = [
        (draft, None, 0) for draft in reversed(children.get(None, []))
    ]
    while stack:
        draft, parent_row, depth = stack.pop()
        row = len(visited)
        visited.append((draft, parent_row, depth))
        stack.extend((child, row, depth + 1) for child in reversed(children.get(draft, [])))
    lasts = list(range(len(visited)))
    for row in range(len(visited) - 1, 0, -1):
        above = visited[row][1]
        if above is not None:
            lasts[above] = max(lasts[above], lasts[row])
    rows: list[TreeRow] = []
    for index, (draft, parent_row, depth) in enumerate(visited):
        node = drafts[draft].node
        above_path = rows[parent_row].path if parent_row is not None else None
        rows.append(
            TreeRow(
                index=index,
                parent=parent_row,
                last=lasts[index],
                depth=depth,
                order=draft,
                label=_label(node, above_path),
                kind=node.kind,
                type_name=node.type_name,
                direction=node.direction,
                golden=drafts[draft].golden,
                target=drafts[draft].target,
                match=drafts[draft].match,
                path=above_path if node.kind is API else node.path,
                micro_step=node.micro_step,
            )
        )
    return tuple(rows)


def _label(node: Node, above_path: str | None) -> str:
    inside = above_path is not None and node.path.startswith(f"{above_path}.")
    name = node.path[len(above_path) + 1 :] if above_path is not None and inside else node.path
    if node.kind is API:
        return f"{name}.{node.call}"
    return f"{name} #{node.call}" if node.call else name
