"""Small models as dumps: a tree of calls that can be edited, written as msprobe would name its nodes.

Call("mlp", "MLP", [Call("Functional.linear")])   ─▶   Functional.linear.0.forward
                                                        Module.mlp.MLP.forward.0
                                                        Module.mlp.MLP.backward.0
                                                        Functional.linear.0.backward
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from hypothesis import strategies
from msgspec import Struct, field
from msgspec.structs import replace

from firstdrift.matching.plan import SlicePlan
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import Role, Statistics, TensorRecord

OPERATORS = ("Tensor.__add__", "Tensor.__mul__", "Functional.linear", "Torch.matmul")
CLASSES = ("Linear", "MLP", "Attention", "Norm")
SHAPES = ((2, 16, 64), (2, 16, 32), (2, 4, 16, 16), (64,))


class Call(Struct, frozen=True):
    """One call of a module (which has a class) or of an operator (which has none).

    `number` says which call it is, whatever it is called; it also makes its values its own.
    """

    name: str
    class_name: str = ""
    children: tuple["Call", ...] = ()
    shape: tuple[int, ...] = (2, 16, 64)
    number: int = 0

    def walk(self) -> Iterator["Call"]:
        yield self
        for child in self.children:
            yield from child.walk()


class Written(Struct):
    """A slice, and which call each of its nodes came from."""

    nodes: list[Node] = field(default_factory=list)
    origin: dict[str, tuple[int, str]] = field(default_factory=dict)

    @property
    def slice(self) -> Slice:
        return Slice(SliceListing(Coordinates(step=0), Path("made")), tuple(self.nodes))

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)


def tensor(role: Role, shape: tuple[int, ...], norm: float | None, key: str = "0") -> TensorRecord:
    """Make a float32 tensor whose statistics follow from its norm; without norm it has none."""
    statistics = None if norm is None else Statistics(norm / 2, -norm / 3, norm / 50, norm)
    return TensorRecord(role, key, "float32", shape, statistics)


def write(
    calls: tuple[Call, ...],
    *,
    factor: float | None = 1.0,
    changed_from: int | None = None,
    backward: bool = True,
) -> Written:
    """Write calls as the nodes of a slice.

    Args:
        calls: the calls at the top.
        factor: all values are multiplied by it; None writes no statistics.
        changed_from: calls from this number on have values of their own (a fault lies before them).
        backward: write the backward nodes too.
    """
    written = Written()
    numbers: Counter[str] = Counter()
    backward_nodes: list[Node] = []

    def norm_of(call: Call) -> float | None:
        if factor is None:
            return None
        changed = changed_from is not None and call.number >= changed_from
        return (10.0 + call.number) * factor * (1.7 + 0.01 * call.number if changed else 1.0)

    def add(call: Call, path: str, parent: str | None, parent_back: str | None) -> None:
        if call.class_name:
            path = f"{path}.{call.name}" if path else call.name
            kind, type_name, stem = NodeKind.MODULE, call.class_name, f"Module.{path}.{call.class_name}"
            number = numbers[stem]
            numbers[stem] += 1
            names = f"{stem}.forward.{number}", f"{stem}.backward.{number}"
            own_path = path
        else:
            kind, type_name, own_path = NodeKind.API, call.name, call.name
            number = numbers[call.name]
            numbers[call.name] += 1
            names = f"{call.name}.{number}.forward", f"{call.name}.{number}.backward"
        start = len(backward_nodes)
        for child in call.children:
            add(child, path, names[0], names[1])
        norm = norm_of(call)
        tensors = tensor(Role.INPUT, call.shape, norm and norm + 0.3), tensor(Role.OUTPUT, call.shape, norm)
        for name, direction, above in zip(
            names, (Direction.FORWARD, Direction.BACKWARD), (parent, parent_back), strict=True
        ):
            node = Node(name, own_path, kind, type_name, direction, number, 0, above, tensors)
            written.origin[name] = (call.number, direction)
            if direction is Direction.FORWARD:
                written.nodes.append(replace(node, order=len(written.nodes)))
            else:
                backward_nodes.insert(start, node)

    for call in calls:
        add(call, "", None, None)
    if backward:
        for node in reversed(backward_nodes):
            written.nodes.append(replace(node, order=len(written.nodes)))
    return written


@strategies.composite
def models(draw: strategies.DrawFn) -> tuple[Call, ...]:
    """Draw a small model; sibling modules have names of their own, every call has its number."""
    leaf = strategies.builds(
        Call, name=strategies.sampled_from(OPERATORS), shape=strategies.sampled_from(SHAPES)
    )

    def around(children: strategies.SearchStrategy[Call]) -> strategies.SearchStrategy[Call]:
        return strategies.builds(
            Call,
            name=strategies.just("module"),
            class_name=strategies.sampled_from(CLASSES),
            children=strategies.lists(children, max_size=5).map(tuple),
            shape=strategies.sampled_from(SHAPES),
        )

    drawn = draw(strategies.lists(strategies.recursive(leaf, around, max_leaves=12), min_size=1, max_size=6))
    numbers = iter(range(10_000))
    return tuple(_numbered(call, numbers, place) for place, call in enumerate(drawn))


def _numbered(call: Call, numbers: Iterator[int], place: int) -> Call:
    number = next(numbers)
    children = tuple(_numbered(child, numbers, at) for at, child in enumerate(call.children))
    name = f"part_{chr(97 + place)}" if call.class_name else call.name
    return replace(call, name=name, number=number, children=children)


def edited(
    calls: tuple[Call, ...],
    *,
    rename: dict[int, str] | None = None,
    delete: frozenset[int] = frozenset(),
    insert_after: dict[int, Call] | None = None,
) -> tuple[Call, ...]:
    """Rename modules, delete calls, and insert calls after others, all given by their numbers."""
    result: list[Call] = []
    for call in calls:
        if call.number not in delete:
            inner = edited(call.children, rename=rename, delete=delete, insert_after=insert_after)
            result.append(replace(call, name=(rename or {}).get(call.number, call.name), children=inner))
        if insert_after and call.number in insert_after:
            result.append(insert_after[call.number])
    return tuple(result)


def numbers_of(calls: tuple[Call, ...], *, modules: bool) -> list[int]:
    """Return the numbers of all modules, or of all operators."""
    return [call.number for top in calls for call in top.walk() if bool(call.class_name) is modules]


def wrong_matches(plan: SlicePlan, golden: Written, target: Written) -> list[tuple[str, str]]:
    """Return the matches that are compared although they pair different calls."""
    return [
        (match.golden[0], match.target[0])
        for match in plan.matches
        if not match.doubtful and golden.origin[match.golden[0]] != target.origin[match.target[0]]
    ]
