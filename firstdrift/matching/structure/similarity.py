"""What speaks for two nodes being the same: names, shapes, contents, and values where statistics exist.

Values that agree speak for a match; values that differ are no reason against one, since after a fault
everything differs. The one exception: parameters are not computed, so if those of two modules of different
names differ, another module may fit better.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from itertools import pairwise
from typing import Final

from msgspec import Struct

from firstdrift.groups import firsts, known
from firstdrift.matching.structure.statistics_similarity import (
    agreed,
    agreement,
    bare_shape_of,
    known_distances,
)
from firstdrift.matching.structure.thresholds import (
    CONFIDENT,
    FIRST_SHAPE,
    INPUTS_AGREE,
    MODULE_OUTPUTS_AGREE,
    NEIGHBOUR,
    NO_SHAPES,
    OTHER_NUMBER,
    OTHER_SHAPE,
    OUTPUTS_AGREE,
    PARAMETERS_AGREE,
    PARAMETERS_DIFFER,
    SAME_FAMILY,
    SAME_OPERATOR,
    SAME_PARAMETER,
    SAME_SHAPE,
)
from firstdrift.matching.tree import (
    SliceTree,
    are_of_one_family,
    is_operator,
    operator_family,
    tensors_of,
    wrapped_modules,
)
from firstdrift.model.node import Node
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.wording.message import Message

_WEIGHTS: Final = {
    "name": 2.0,
    "class": 2.0,
    "output shapes": 3.0,
    "input shapes": 1.0,
    "parameter shapes": 2.0,
    "contents": 3.0,
    "neighbours": 1.0,
}
"""What each likeness of two modules counts for, where it is known."""

_SHAPES: Final = {
    "output shapes": Role.OUTPUT,
    "input shapes": Role.INPUT,
    "parameter shapes": Role.PARAMETER,
}

SAME_NAME: Final = Message.of("matching.reason.same_name")
SAME_CLASS: Final = Message.of("matching.reason.same_class")
SAME_CONTENTS: Final = Message.of("matching.reason.same_contents")
SAME_SHAPES: Final = {
    Role.INPUT: Message.of("matching.reason.same_shapes.input"),
    Role.OUTPUT: Message.of("matching.reason.same_shapes.output"),
    Role.PARAMETER: Message.of("matching.reason.same_shapes.parameter"),
}
VALUES_AGREE: Final = {
    Role.INPUT: Message.of("matching.reason.values_agree.input"),
    Role.OUTPUT: Message.of("matching.reason.values_agree.output"),
    Role.PARAMETER: Message.of("matching.reason.values_agree.parameter"),
}
_COMPARED: Final = {
    "name": (SAME_NAME, "matching.reason.other_name"),
    "class": (SAME_CLASS, "matching.reason.other_class"),
    "operator": (Message.of("matching.reason.same_operator"), "matching.reason.other_operator"),
}
"""What is said of two nodes where that is the same, and the id of what is said where it is not."""


class Evidence(Struct, frozen=True):
    """Weighs what speaks for a golden and a target node being the same."""

    golden: SliceTree
    target: SliceTree

    def score(self, golden: int, target: int, neighbours: int, *, contested: bool = True) -> float:
        """Return how much speaks for a match, 0 to 1.

        Neighbours are the sides (0 to 2) on which both have siblings of the same kind beside them; contested
        is a match where other nodes could be the partner of one of them.
        """
        first, second = self.golden.nodes[golden], self.target.nodes[target]
        if first.direction is not second.direction or is_operator(first) is not is_operator(second):
            return 0.0
        if is_operator(first):
            return _operator_score(first, second, neighbours)
        score = self._module_score(golden, target, neighbours, contested=contested)
        fits_inside = max(self._scores_inside(golden, target, neighbours), default=0.0)
        return score if score >= fits_inside else 0.0

    def reasons(self, golden: int, target: int) -> tuple[Message, ...]:
        """Say what spoke for a match, one clause each."""
        first, second = self.golden.nodes[golden], self.target.nodes[target]
        if is_operator(first):
            reasons = [_compare("operator", first.type_name, second.type_name)]
        else:
            reasons = list(self._reasons_of_modules(golden, target))
        for role in (Role.INPUT, Role.OUTPUT):
            if shape_similarity(first, second, role) == 1.0:
                reasons.append(SAME_SHAPES[role])
            if agreed(first, second, role) >= CONFIDENT:
                reasons.append(VALUES_AGREE[role])
        return tuple(reasons)

    def _reasons_of_modules(self, golden: int, target: int) -> Iterator[Message]:
        yield _compare("name", self.golden.relative_name(golden), self.target.relative_name(target))
        classes = self.golden.nodes[golden].type_name, self.target.nodes[target].type_name
        if all(classes):
            yield _compare("class", *classes)
        if self.contents_similarity(golden, target) == 1.0:
            yield SAME_CONTENTS
        if self._parameter_agreement(golden, target) == 1.0:
            yield VALUES_AGREE[Role.PARAMETER]

    def is_contradicted(self, golden: int, target: int) -> bool:
        """Tell whether arguments or results of two nodes are unlike, and no results speak against that.

        Operators are unlike if a tensor of the same key has another shape, or is none, on the other side;
        modules if the one takes tensors of other shapes than the other and what they give differs.
        """
        first, second = self.golden.nodes[golden], self.target.nodes[target]
        if not is_operator(first):
            are_other = shape_similarity(first, second, Role.INPUT) == 0.0
            return are_other and agreement(first, second, Role.OUTPUT) == 0.0
        if agreed(first, second, Role.OUTPUT) >= CONFIDENT:
            return False
        looks = {record.label: _look(record) for record in first.tensors}
        return any(looks.get(record.label, _look(record)) != _look(record) for record in second.tensors)

    def _scores_inside(self, golden: int, target: int, neighbours: int) -> Iterator[float]:
        """Score two modules of different names against what the other wraps, if its values agree as well."""
        if self.golden.relative_name(golden) == self.target.relative_name(target):
            return
        agreement_of_both = self._value_agreement(golden, target)
        equal = self.contents_similarity(golden, target) == 1.0
        pairs = [(golden, child) for child in wrapped_modules(self.target, target, all_in_one=equal)]
        pairs += [(child, target) for child in wrapped_modules(self.golden, golden, all_in_one=equal)]
        for pair in pairs:
            if self._value_agreement(*pair) >= agreement_of_both:
                yield self._module_score(*pair, neighbours, contested=True)

    def _module_score(self, golden: int, target: int, neighbours: int, *, contested: bool) -> float:
        first, second = self.golden.nodes[golden], self.target.nodes[target]
        names = self.golden.relative_name(golden), self.target.relative_name(target)
        likeness = {
            "name": name_similarity(*names),
            "class": class_similarity(first, second),
            **shape_similarities(first, second),
            "contents": self.contents_similarity(golden, target),
            "neighbours": neighbours / 2,
        }
        score = weighted_mean(likeness, _WEIGHTS)
        parameters = self._parameter_agreement(golden, target)
        if parameters == 0.0 and contested and names[0] != names[1]:
            return PARAMETERS_DIFFER * score
        score += (1 - score) * MODULE_OUTPUTS_AGREE * agreed(first, second, Role.OUTPUT)
        return score + (1 - score) * PARAMETERS_AGREE * (parameters or 0.0)

    def _value_agreement(self, golden: int, target: int) -> float:
        outputs = agreed(self.golden.nodes[golden], self.target.nodes[target], Role.OUTPUT)
        return max(outputs, self._parameter_agreement(golden, target) or 0.0)

    def contents_similarity(self, golden: int, target: int) -> float | None:
        """Return the share of operators and parameters that two modules have in common."""
        first, second = self.golden.contents(golden).parts, self.target.contents(target).parts
        either = (first | second).total()
        return (first & second).total() / either if either else None

    def _parameter_agreement(self, golden: int, target: int) -> float | None:
        """Return the share of parameters that agree; None where there are none of equal shapes to compare."""
        first, second = self.golden.contents(golden).parameters, self.target.contents(target).parameters
        if [tensor.shape for tensor in first] != [tensor.shape for tensor in second]:
            return None
        distances = known_distances(first, second)
        return sum(each <= SAME_PARAMETER for each in distances) / len(distances) if distances else None


def weighted_mean(likeness: Mapping[str, float | None], weights: Mapping[str, float]) -> float:
    """Return the mean of the likenesses that are known, each with its weight."""
    counted = [(weights[what], value) for what, value in likeness.items() if value is not None]
    return sum(weight * value for weight, value in counted) / sum(firsts(counted))


def shape_key(node: Node) -> Hashable:
    """Return operator and shapes of a node, for comparing many at once; of a module only the shapes."""
    shapes = tuple((tensor.role, bare_shape_of(tensor)) for tensor in node.tensors if tensor.is_tensor)
    return operator_family(node.type_name) if is_operator(node) else None, node.direction, shapes


def shape_similarity(golden: Node, target: Node, role: Role) -> float | None:
    """Compare the shapes of the tensors of a role, 0 to 1; dimensions of size 1 do not count.

    The first tensor weighs most. None where nothing is known: one node has no tensors at all, or neither
    has any of that role.
    """
    if not golden.tensors or not target.tensors:
        return None
    first, second = (list(map(bare_shape_of, tensors_of(node, role))) for node in (golden, target))
    if first == second:
        return 1.0 if first else None
    counts = Counter(first), Counter(second)
    shared = (counts[0] & counts[1]).total() / (counts[0] | counts[1]).total()
    if not shared:
        return 0.0
    return FIRST_SHAPE * (first[0] == second[0]) + (1 - FIRST_SHAPE) * shared


def shape_similarities(golden: Node, target: Node) -> dict[str, float | None]:
    """Compare the shapes of the tensors of each role."""
    return {what: shape_similarity(golden, target, role) for what, role in _SHAPES.items()}


@lru_cache(maxsize=1 << 14)  # the names of layers come again and again
def name_similarity(first: str, second: str) -> float:
    """Compare names by the pairs of letters they share (Dice), 0 to 1; differing numbers count against."""
    if first == second:
        return 1.0
    pairs = [Counter(pairwise(name.lower())) for name in (first, second)]
    either = pairs[0].total() + pairs[1].total()
    shared = 2 * (pairs[0] & pairs[1]).total() / either if either else 0.0
    return shared if _numbers(first) == _numbers(second) else OTHER_NUMBER * shared


def class_similarity(golden: Node, target: Node) -> float | None:
    """Compare the classes of two modules; None where a dump does not tell one of them."""
    if not golden.type_name or not target.type_name:
        return None
    return name_similarity(golden.type_name, target.type_name)


def _operator_score(golden: Node, target: Node, neighbours: int) -> float:
    if not are_of_one_family(golden, target):
        return 0.0
    score = SAME_OPERATOR if golden.type_name == target.type_name else SAME_FAMILY
    score += NEIGHBOUR * (neighbours - 1)
    shapes = known(shape_similarity(golden, target, role) for role in (Role.INPUT, Role.OUTPUT))
    score += sum(shape * SAME_SHAPE + (1 - shape) * OTHER_SHAPE for shape in shapes) if shapes else NO_SHAPES
    outputs, inputs = agreed(golden, target, Role.OUTPUT), agreed(golden, target, Role.INPUT)
    return score + max(0.0, 1 - score) * (OUTPUTS_AGREE * outputs + INPUTS_AGREE * inputs)


def _compare(what: str, golden: str, target: str) -> Message:
    same, other = _COMPARED[what]
    return same if golden == target else Message.of(other, golden=golden, target=target)


def _look(record: TensorRecord) -> Hashable:
    """Return what tells arguments apart: the shape of a tensor; all that are none look alike."""
    return (bare_shape_of(record),) if record.is_tensor else None


def _numbers(name: str) -> list[str]:
    return [part for part in name.split(".") if part.isdigit()]
