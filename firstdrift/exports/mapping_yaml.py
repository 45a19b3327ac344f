"""Write what was matched as mapping files that msprobe accepts and firstdrift reads back.

    data_mapping     Functional.linear.4.forward.output.0: Functional.linear.3.forward.output.0
    layer_mapping    TopLayer:
                       0.module.module.decoder.layers: module.model.layers

Neither can say that several modules were fused into one: comments name those. A layer mapping leads to one of
the parts, as people write it by hand, and from that firstdrift finds the others again.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Final

import yaml

from firstdrift.comparison.report import Report
from firstdrift.matching.manual.mapping import TOP_LAYER
from firstdrift.matching.plan import NodeMatch, SlicePlan, TensorPair
from firstdrift.model.names import parse_name, with_direction
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.paths import printable

_Dumper: Final = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_NO_FOLDING: Final = 2**16


def data_mapping(plans: Iterable[SlicePlan]) -> str:
    """Return full names of compared target tensors, each with that of its golden partner, as YAML.

    Names that are the same on both sides need no entry; they are written only where there are no others.
    Where slices differ the first decides. Backward operators that follow their forward operators are left
    out: msprobe numbers those of the golden dump anew before it looks them up, and finds others.
    """
    plans = tuple(plans)
    entries = _named_once(_the_first(chain.from_iterable(map(_items, plans))))
    renamed = {target: golden for target, golden in entries.items() if target != golden}
    return _document(renamed or entries, plans)


def _items(plan: SlicePlan) -> Iterator[tuple[str, str]]:
    """Yield the names of the target and the golden tensor of each pair that has an entry."""
    matches = [match for match in plan.matches if match.golden and match.target and not match.doubtful]
    matched = {(match.golden[0], match.target[0]) for match in matches}
    for pair in filter(_is_of_two_tensors, plan.pairs):
        if not _follows(pair, matched):
            yield item_name(pair.target_node, pair.target), item_name(pair.golden_node, pair.golden)


def _is_of_two_tensors(pair: TensorPair) -> bool:
    return pair.joining is None and pair.target.is_tensor and pair.golden.is_tensor


def _the_first(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return a partner for each target: the first."""
    partners: dict[str, str] = {}
    for target, golden in pairs:
        partners.setdefault(target, golden)
    return partners


def _named_once(entries: dict[str, str]) -> dict[str, str]:
    """Return the entries without those whose golden tensor an entry before has: a mapping names each once."""
    named: dict[str, str] = {}
    for target, golden in entries.items():
        named.setdefault(golden, target)
    return {target: golden for golden, target in named.items()}


def layer_mapping(plans: Iterable[SlicePlan]) -> str:
    """Return the paths of matched target modules, each with that of its golden partner, as YAML.

    A path that follows from that of a module around it needs no entry of its own.
    """
    plans = tuple(plans)
    partners = _the_first(pair for plan in plans for match in plan.matches for pair in _paths(match))
    entries: dict[str, str] = {}
    for target in sorted(partners, key=lambda path: path.count(".")):
        if _translate(target, entries) != partners[target]:
            entries[target] = partners[target]
    return _document({TOP_LAYER: entries or partners}, plans)


def write_mapping(mapping: Callable[[Iterable[SlicePlan]], str], report: Report, path: Path) -> None:
    """Write a mapping of a report, such as `data_mapping`; raise OSError if it cannot be written."""
    path.write_text(mapping(result.plan for result in report.slices), "utf-8", newline="\n")


def item_name(node: str, record: TensorRecord) -> str:
    """Return the full name of a tensor, as msprobe has it: "Functional.linear.4.forward.output.0"."""
    if record.role is Role.GRADIENT and parse_name(node).holds_gradients:
        return f"{node}.{record.key}"
    role = "parameters" if record.role is Role.PARAMETER else record.role.value
    return f"{node}.{role}.{record.key}"


def _follows(pair: TensorPair, matched: set[tuple[str, str]]) -> bool:
    parts = parse_name(pair.target_node)
    forward = with_direction(pair.golden_node, "forward"), with_direction(pair.target_node, "forward")
    return parts.kind == "api" and parts.direction == "backward" and forward in matched


def _paths(match: NodeMatch) -> Iterator[tuple[str, str]]:
    """Yield target and golden path of a match of forward modules; of what was fused, one golden path."""
    if match.doubtful or not match.golden:
        return
    golden = parse_name(match.golden[0]).path
    for target in map(parse_name, match.target):
        forward = target.kind == "module" and target.direction != "backward" and not target.holds_gradients
        if forward and target.path and golden:
            yield target.path, golden


def _translate(path: str, entries: dict[str, str]) -> str:
    """Translate the longest part of a path, from its begin, that has an entry."""
    parts = path.split(".")
    for length in range(len(parts), 0, -1):
        if (known := entries.get(".".join(parts[:length]))) is not None:
            return ".".join((known, *parts[length:]))
    return path


def _document(entries: dict[str, str] | dict[str, dict[str, str]], plans: tuple[SlicePlan, ...]) -> str:
    fused = dict.fromkeys(_fused(match) for plan in plans for match in plan.matches if _is_fused(match))
    header = ["# target: golden", *fused]
    text: str = yaml.dump(entries, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_NO_FOLDING)
    return "\n".join((*header, text))


def _is_fused(match: NodeMatch) -> bool:
    several = len(match.golden) > 1 or len(match.target) > 1
    return several and bool(match.target) and parse_name(match.target[0]).direction != "backward"


def _fused(match: NodeMatch) -> str:
    return f"# fused: {printable(' + '.join(match.target))}: {printable(' + '.join(match.golden))}"
