"""Passes of one process are laid one after the other; what only some of them have is not lost."""

from pathlib import Path

from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import Role, Statistics, TensorRecord
from firstdrift.parallel.merge_passes import merge_passes

NOT_IN_ALL = "dumps.passes.not_in_all"


def merged(*passes: dict[str, list[str]]) -> dict[str, dict[str, str | None]]:
    """Merge passes, given the keys of what each node takes; return why each tensor is not compared."""
    listings = tuple(SliceListing(Coordinates(step=at), Path("made")) for at in range(len(passes)))
    rows = tuple((4 + at,) for at in range(len(passes)))
    slices = [
        Slice(
            listing,
            tuple(
                Node(name, name, NodeKind.MODULE, "Linear", Direction.FORWARD, 0, order, None, tensors)
                for order, name in enumerate(nodes)
                for tensors in [
                    tuple(
                        TensorRecord(Role.INPUT, key, "float32", (*given, 8), Statistics(1.0, 0.0, 0.1, 2.0))
                        for key in nodes[name]
                    )
                ]
            ),
        )
        for listing, nodes, given in zip(listings, passes, rows, strict=True)
    ]
    whole = merge_passes(SliceListing(Coordinates(step=0), Path("made"), listings, rows=rows), slices)
    assert [node.order for node in whole.nodes] == list(range(len(whole.nodes)))
    return {
        node.name: {each.key: each.problem and each.problem.id for each in node.tensors}
        for node in whole.nodes
    }


def test_what_all_passes_have_is_laid_one_after_the_other() -> None:
    assert merged({"norm": ["0"]}, {"norm": ["0"]}) == {"norm": {"0": None}}


def test_a_tensor_that_only_a_later_pass_has_is_kept_and_said_not_to_be_in_all() -> None:
    first = merged({"norm": ["0"]}, {"norm": ["0", "residual"]})
    second = merged({"norm": ["0", "residual"]}, {"norm": ["0"]})
    assert first == second == {"norm": {"0": None, "residual": NOT_IN_ALL}}


def test_a_node_that_only_a_later_pass_has_stands_where_it_ran() -> None:
    nodes = merged(
        {"attn": ["0"], "head": ["0"]}, {"embed": ["0"], "attn": ["0"], "cache": ["0"], "head": ["0"]}
    )
    assert list(nodes) == ["embed", "attn", "cache", "head"]
    assert nodes["cache"] == {"0": NOT_IN_ALL}
    assert nodes["head"] == {"0": None}
