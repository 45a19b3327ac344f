"""Another model is not taken for one rank of the same, and what makes it another is said."""

from library.matching.made_frameworks import Model, Writer, torch_of
from messages import ids

from firstdrift.matching.match import match_slices
from firstdrift.matching.plan import MatchingRules, SlicePlan
from firstdrift.matching.tensors import shapes_differ


def matched(target: Model) -> SlicePlan:
    def without_head(writer: Writer) -> Writer:
        writer.nodes = [node for node in writer.nodes if not node.path.endswith("lm_head")]
        return writer

    both = [without_head(torch_of(model, statistics=False)).slice for model in (Model(), target)]
    return match_slices(both[0], both[1], MatchingRules())


def test_fewer_heads_for_keys_and_values_are_no_part_of_a_rank() -> None:
    plan = matched(Model(key_value=8))
    assert "note.one_rank_alone" not in ids(plan.notes)
    other = {pair.target_node: pair.incomparable for pair in plan.pairs if pair.incomparable is not None}
    assert other == {
        f"root.model.layers.{layer}.self_attn.{name}_proj": shapes_differ((1, 5, 16), (1, 5, 8))
        for layer in (0, 1)
        for name in "kv"
    }
