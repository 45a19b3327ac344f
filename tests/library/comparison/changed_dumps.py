"""Copies of dumps of statistics, as msprobe writes them, in which nodes are gone, renamed, elsewhere, or off.

    change_dump(folder, copy, Change(delete=0.3, rename=0.2, fault=True), random.Random(1))

What is changed is drawn: the same seed changes the same.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Data = dict[str, Any]
_NUMBERS = ("Max", "Min", "Mean", "Norm")
_ROUNDING = 1e-7


class Change(NamedTuple):
    """What is done to a dump.

    Attributes:
        delete: share of the nodes that are left out, but for gradients of parameters: that one side alone has
            one is a fault; likewise rename, of the words in the paths of modules
            that are others, and reorder, of the nodes that change places with the next.
        fault: whether what one node of the forward pass gives, and all that follows, is another.
    """

    delete: float = 0.0
    rename: float = 0.0
    reorder: float = 0.0
    fault: bool = False


def change_dump(folder: Path, copy: Path, change: Change, dice: random.Random) -> None:
    """Copy a dump, and change the copy; all its steps and ranks alike."""
    shutil.copytree(folder, copy)
    seed = dice.random()
    for file in sorted(copy.rglob("dump.json")):
        _change_file(file, change, random.Random(seed))  # noqa: S311 (the same in every run)


def _change_file(file: Path, change: Change, dice: random.Random) -> None:
    written = json.loads(file.read_text())
    data: Data = _off(written["data"], dice, fault=change.fault)
    data = {name: node for name, node in data.items() if _is_kept(name, change, dice)}
    names = _reordered(list(data), change.reorder, dice)
    called = _renamer(change.rename, dice)
    written["data"] = {called(name): data[name] for name in names}
    file.write_text(json.dumps(written))
    construct = file.with_name("construct.json")
    parents = json.loads(construct.read_text())
    construct.write_text(json.dumps({called(one): _parent(above, called) for one, above in parents.items()}))


def _is_kept(name: str, change: Change, dice: random.Random) -> bool:
    return dice.random() >= change.delete or "parameters_grad" in name


def _parent(above: Any, called: Callable[[str], str]) -> Any:  # noqa: ANN401 (what JSON has)
    if isinstance(above, list):
        return [_parent(one, called) for one in above]
    return called(above) if isinstance(above, str) else above


def _reordered(names: list[str], share: float, dice: random.Random) -> list[str]:
    for at in range(len(names) - 1):
        if dice.random() < share:
            names[at], names[at + 1] = names[at + 1], names[at]
    return names


def _renamer(share: float, dice: random.Random) -> Callable[[str], str]:
    """Give words of the paths of modules others, in all places the same; numbers and classes stay."""
    made: dict[str, str] = {}

    def word(old: str) -> str:
        if old not in made:
            made[old] = "".join(dice.choices("bcdfgjmptvxz", k=6)) if dice.random() < share else old
        return made[old]

    def called(name: str) -> str:
        kind, *path = name.split(".")
        if kind != "Module" or len(path) < 4:
            return name
        inside, tail = path[:-3], path[-3:]
        return ".".join([kind, *(one if one.isdigit() else word(one) for one in inside), *tail])

    return called


def _off(data: Data, dice: random.Random, *, fault: bool) -> Data:
    """Round all numbers anew, and let all that follows from one node be off, alike wherever it was alike."""
    forward = [name for name, node in data.items() if ".forward." in name and any(_floats(node, "output"))]
    at_fault = dice.choice(forward) if fault and forward else None
    healthy: set[tuple[object, ...]] = set()
    factors: dict[tuple[object, ...], float] = {}
    begun = False
    for name, node in data.items():
        begun |= name == at_fault
        outputs = {id(record) for record in _floats(node, "output")}
        for record in _floats(node):
            key = _key(record)
            is_off = begun and key not in healthy and (name != at_fault or id(record) in outputs)
            if not is_off:
                healthy.add(key)
            size = dice.uniform(1.2, 1.6) if is_off else 1.0 + _ROUNDING * dice.gauss()
            factors.setdefault(key, size)
    for node in data.values():
        for record in _floats(node):
            factor = factors[_key(record)]
            record |= {name: record[name] * factor for name in _NUMBERS if record.get(name) is not None}
    return data


def _key(record: dict[str, Any]) -> tuple[object, ...]:
    return tuple(record.get(name) for name in _NUMBERS)


def _floats(node: Any, part: str | None = None) -> Iterator[dict[str, Any]]:  # noqa: ANN401 (what JSON has)
    """Yield the records of tensors of fractions of a node, or of a part of it."""
    if isinstance(node, dict) and str(node.get("dtype", "")).startswith(("torch.float", "torch.bfloat")):
        if all(isinstance(node.get(name), float | int | None) for name in _NUMBERS):
            yield node
        return
    inside = (node.get(part),) if part is not None else node.values() if isinstance(node, dict) else node
    for one in inside:
        if isinstance(one, dict | list):
            yield from _floats(one)
