"""Write how tensors of one implementation are seen as those of another, which firstdrift reads back.

- target: Module.decoder.linear_qkv.ColumnParallelLinear.forward.0.output.0
  golden: [Module.q_proj.Linear.forward.0.output.0, ...]
  view: [concatenated]
  how: q_proj, k_proj, v_proj side by side

What msprobe can say, which tensor is which, is in a data mapping; this file has what is joined, split, laid
out anew or taken in part. Weights and rows of experts, and what neighbours tell, are found again without.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import yaml

from firstdrift.exports.mapping_yaml import item_name
from firstdrift.matching.manual.mapping import VIEW
from firstdrift.matching.plan import Joining, NodeMatch, SlicePlan, TensorPair
from firstdrift.model.tensor import TensorRecord
from firstdrift.wording.phrases import side_named
from firstdrift.wording.text import texts_of

_Dumper: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_ADDED: Final = "matching.transform.with_residual"
"""The id of what is said of tensors that are added up."""

_OF_TWO: Final = frozenset({Joining.VIEW, Joining.REARRANGED})
"""How two tensors, of one node each, are seen as each other."""


def view_mapping(plans: Iterable[SlicePlan]) -> str:
    """Return as YAML which tensors are compared in which view; where slices differ the first decides."""
    items: dict[tuple[str, ...], dict[str, Any]] = {}
    for plan in plans:
        for pair in plan.pairs:
            match = plan.matches[pair.match]
            is_single = len(match.golden) == len(match.target) == 1
            is_written = pair.joining in _OF_TWO if is_single else pair.joining is Joining.CONCATENATED
            if is_written and pair.incomparable is None:
                item = _item(match, pair)
                items.setdefault(tuple(item["target"]), item)
    text: str = yaml.dump(
        [*items.values()] or {}, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100
    )
    return text


def _item(match: NodeMatch, pair: TensorPair) -> dict[str, Any]:
    is_joined = pair.joining is Joining.CONCATENATED
    golden = _names(pair.golden_node, pair.golden, _added(pair, "golden"))
    target = _names(pair.target_node, pair.target, _added(pair, "target"))
    if is_joined and pair.golden_parts:
        golden = list(map(item_name, match.golden, pair.golden_parts))
    if is_joined and pair.target_parts:
        target = list(map(item_name, match.target, pair.target_parts))
    how = "; ".join(texts_of(pair.transform))
    return {"target": target, "golden": golden, "view": list(_view(pair, golden, target)), "how": how}


def _added(pair: TensorPair, side: str) -> tuple[str, ...]:
    """Return the labels of the tensors that are added up to one of a pair."""
    sums = [how.arguments for how in pair.transform if how.id == _ADDED]
    parts = [how["parts"] for how in sums if how["side"] == side_named(side)]
    return tuple(map(str, parts[0])) if parts and isinstance(parts[0], tuple) else ()


def _names(node: str, record: TensorRecord, labels: tuple[str, ...]) -> list[str]:
    return [f"{node}.{label}" for label in labels] or [item_name(node, record)]


def _view(pair: TensorPair, golden: list[str], target: list[str]) -> Iterator[str]:
    """Yield what is done to the tensors, as it is read back."""
    if pair.joining is not Joining.VIEW:
        yield str(pair.joining)
    elif max(len(golden), len(target)) > 1:
        yield "summed"
    for side, record in (("golden", pair.golden), ("target", pair.target)):
        steps = record.location.view if record.location is not None else ()
        said = (" ".join((side, step.name, *map(str, step.numbers))) for step in steps)
        yield from filter(VIEW.fullmatch, said)
