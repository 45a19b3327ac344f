"""Pair the tensors of two modules of two implementations: what is the same quantity, seen as the same.

golden   norm(x)                    target   norm(hidden, residual) -> normed, hidden + residual
         input.0  x                          input.0 + input.1
         output.0                            output.0

golden   layer(x) -> y              target   layer(positions, hidden, residual) -> hidden, residual
         output.0 y                          output.0 + output.1

A module gives what it does first. What else it takes, as masks and positions, each implementation hands
over in its own way: it is paired by name only.
"""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from itertools import product, starmap

from msgspec import Struct, field
from msgspec.structs import replace

from firstdrift.groups import known
from firstdrift.matching.implementations.boundaries import MADE_OTHERWISE
from firstdrift.matching.implementations.element_order import (
    weight_among,
    with_order_of_forward,
    with_order_of_given,
    with_order_of_weights,
)
from firstdrift.matching.implementations.one_tensor import (
    Candidates,
    Sums,
    as_given,
    both,
    hands_on_bias,
    summed,
    with_bias,
)
from firstdrift.matching.implementations.products import (
    are_products_by_other_names,
    is_given,
    is_given_more,
    multiply_the_same,
    same_matrices,
)
from firstdrift.matching.implementations.repeated_inputs import repeated_inputs, whole_gradient
from firstdrift.matching.implementations.thresholds import TWO_PARTS
from firstdrift.matching.implementations.views import Seen, floating, repeated, seen, swapped
from firstdrift.matching.plan import Joining, Messages, TensorPair
from firstdrift.matching.structure.statistics_similarity import value_key
from firstdrift.matching.tensors import TensorPairing
from firstdrift.matching.tree import Place, SliceTree, tensors_of
from firstdrift.model.names import with_direction
from firstdrift.model.node import Direction, Node
from firstdrift.model.tensor import Role, TensorRecord, is_floating
from firstdrift.operators.kinds import OpKind
from firstdrift.operators.paths import runs_through_head
from firstdrift.operators.recognise import kind_of


class Side(Struct, frozen=True):
    """One of the two runs.

    Attributes:
        sums: what its modules add up.
        transposed: classes of linear modules whose weights are [in, out], as those say whose sizes differ.
        repeated: of backward modules, how often the forward pass was given one tensor in the first places.
    """

    sums: Sums
    transposed: frozenset[str]
    repeated: Mapping[str, int]


class Pairer(Struct, frozen=True):
    """Pairs the tensors of modules of two implementations, in execution order.

    Attributes:
        golden: the golden run; likewise target.
        made: what was paired as outputs so far: the key of the golden value, and that of the target value.
        in_order: numbers of those of which no other order of elements is thought possible.
        turned: of others, the weights that say in what order they lie; none where no values were saved.
        linear: the matches of linear modules so far.
        weights: their weights, where values were saved, by the paths of both.
        inside: what was made inside of a module of the other run, by its key, of either run.
        apart: modules, by the names of both, of which one is given what was made so.
        turned_weights: of square weights that lie the other way round, the paths of both.
        sequences: how many sequences both look up as many words of.
    """

    golden: Side
    target: Side
    made: tuple[dict[Hashable, int], dict[Hashable, int]] = field(default_factory=lambda: ({}, {}))
    in_order: set[int] = field(default_factory=set)
    turned: dict[int, tuple[TensorRecord, ...]] = field(default_factory=dict)
    linear: set[int] = field(default_factory=set)
    weights: dict[tuple[str, str], TensorPair | None] = field(default_factory=dict)
    inside: tuple[set[Hashable], set[Hashable]] = field(default_factory=lambda: (set(), set()))
    apart: set[tuple[str, str]] = field(default_factory=set)
    turned_weights: set[tuple[str, str]] = field(default_factory=set)
    sequences: set[int] = field(default_factory=set)

    def pair(self, tensors: TensorPairing, row: int, golden: Node, target: Node) -> None:
        """Pair the tensors of two modules that are a match, and list what is left over."""
        pairs: list[TensorPair] = []
        taken: tuple[set[Place], set[Place]] = set(), set()
        is_linear = kind_of(golden) is kind_of(target) is OpKind.LINEAR
        for first, second, how in self._candidates(golden, target):
            places = (golden.name, first.label), (target.name, second.label)
            if places[0] in taken[0] or places[1] in taken[1] or self._are_made_apart(first, second):
                continue
            found = self._seen(golden, target, first, second)
            if found is None:
                continue
            taken[0].add(places[0])
            taken[1].add(places[1])
            self._remember(first, second, in_order=not is_linear)
            pairs.append(_pair(row, (golden, target), found, how))
        tensors.pairs += self._in_order_of_weights(row, golden, target, pairs)
        tensors.leave(row, [golden], [target], taken)

    def _in_order_of_weights(
        self, row: int, golden: Node, target: Node, pairs: list[TensorPair]
    ) -> list[TensorPair]:
        """Return pairs of two modules, of linear ones in whatever order their weights lie."""
        paths = golden.path, target.path
        is_linear = kind_of(golden) is kind_of(target) is OpKind.LINEAR
        if is_linear and golden.direction is not Direction.BACKWARD:
            self.linear.add(row)
            self.weights[paths] = weight_among(pairs)
            self._remember_order(pairs, self.weights[paths])
            return with_order_of_weights(pairs, self._is_given_in_order)
        weight = self.weights.get(paths)
        return pairs if weight is None else with_order_of_forward(pairs, weight)

    def _seen(self, golden: Node, target: Node, first: TensorRecord, second: TensorRecord) -> Seen | None:
        """Say how two tensors of two modules can be compared."""
        of_vocabulary = any(map(_is_of_vocabulary, (golden, target)))
        other = swapped(second) if self._is_turned(golden, target, first) else second
        found = seen(first, other, of_vocabulary=of_vocabulary)
        if not _look_up(golden, target):
            return found
        if found is not None and first.role is Role.INPUT:
            self.sequences.update((first.shape or ())[:1])
        return found or self._repeated(first, other)

    def stays_inside(self, node: Node, *, is_golden: bool) -> None:
        """Remember that what a module gives stays inside of a module of the other run."""
        if node.direction is not Direction.BACKWARD:
            keys = map(value_key, _in(node, Role.OUTPUT))
            self.inside[not is_golden].update(key for key in keys if key is not None)

    def pair_operators(self, tensors: TensorPairing, row: int, golden: Node, target: Node) -> None:
        """Pair the tensors of two operators that are a match, if they are the same quantities.

        Inside a module each implementation has its own code: only what was made by the same tells that two
        products, or two sums, are the same one.
        """
        own = self._pair_as_called(row, golden, target)
        made = self._made_of(own)
        if made <= self.in_order and made:
            for pair in own.pairs:
                self._remember(pair.golden, pair.target, in_order=True)
            own.pairs = [replace(pair, by_statistics=True) for pair in own.pairs]
        elif len(made) == 1 and made <= self.turned.keys() and _treat_each_element(golden, target):
            own.pairs = with_order_of_given(own.pairs, self.turned[made.pop()])
        elif not (are_products_by_other_names(golden, target) and multiply_the_same(own)):
            own.pairs = [replace(pair, incomparable=MADE_OTHERWISE) for pair in own.pairs]
        tensors.add(own)

    def _pair_as_called(self, row: int, golden: Node, target: Node) -> TensorPairing:
        """Pair the tensors of two operators by name; where they are called otherwise, by what they are."""
        own = TensorPairing()
        own.pair(row, golden, target)
        if _look_up(golden, target):
            own.pairs = list(map(self._with_repeated, own.pairs))
        if are_products_by_other_names(golden, target):
            pairs = [_pair(row, (golden, target), matrix, ()) for matrix in same_matrices(own)]
            # A square one may lie either way round.
            own.pairs += [replace(pair, by_statistics=True) for pair in pairs]
            own.drop_paired()
            _pair_given(own, row, golden, target)
        elif _treat_each_element(golden, target):
            _pair_given(own, row, golden, target)
        return own

    def _made_of(self, pairing: TensorPairing) -> set[int]:
        """Return the numbers of what two operators are given; none unless all of it was made by the same."""
        given = [pair for pair in pairing.pairs if is_given(pair.golden)]
        if is_given_more(pairing):
            return set()
        made = {self._made_by_one(pair.golden, pair.target) for pair in given}
        return set() if None in made else set(known(made))

    def _is_given_in_order(self, pair: TensorPair) -> bool:
        """Tell whether two inputs were made by what is the same and lies in one order."""
        made = self._made_by_one(pair.golden, pair.target)
        return pair.golden.role is Role.INPUT and made in self.in_order

    def _remember_order(self, pairs: Sequence[TensorPair], weight: TensorPair | None) -> None:
        """Remember what says in which order a linear module gives its elements."""
        for pair in (each for each in pairs if each.golden.role is Role.OUTPUT):
            number = self._made_by_one(pair.golden, pair.target)
            are_saved = None not in (pair.golden.location, pair.target.location)
            if number is not None and (weight is not None or not are_saved):
                self.turned[number] = () if weight is None else (weight.golden, weight.target)

    def _is_turned(self, golden: Node, target: Node, record: TensorRecord) -> bool:
        """Tell whether a weight as wide as high lies the other way round, as the others of its class do.

        So does its gradient.
        """
        shape, paths = record.shape or (), (golden.path, target.path)
        if len(shape) != TWO_PARTS or shape[0] != shape[1]:
            return False
        turned = golden.type_name in self.golden.transposed, target.type_name in self.target.transposed
        if record.role is Role.PARAMETER and turned[0] is not turned[1]:
            self.turned_weights.add(paths)
        return record.role in (Role.PARAMETER, Role.GRADIENT) and paths in self.turned_weights

    def _are_made_apart(self, golden: TensorRecord, target: TensorRecord) -> bool:
        """Tell whether two inputs were made by what is not the same, as what made them tells."""
        if golden.role is not Role.INPUT:
            return False
        made = self._made(golden, target)
        return self._is_inside(golden, target) or (None not in made and made[0] != made[1])

    def _is_inside(self, golden: TensorRecord, target: TensorRecord) -> bool:
        """Tell whether one of two tensors was made inside of a module of the other run."""
        return value_key(golden) in self.inside[0] or value_key(target) in self.inside[1]

    def _are_given_apart(self, golden: Node, target: Node) -> bool:
        """Tell whether two modules, or those whose backward pass they are, take what is not the same."""
        names = with_direction(golden.name, "forward"), with_direction(target.name, "forward")
        taken = _in(golden, Role.INPUT)[:1], _in(target, Role.INPUT)[:1]
        if golden.direction is not Direction.BACKWARD and any(starmap(self._is_inside, product(*taken))):
            self.apart.add(names)
        return names in self.apart

    def _made_by_one(self, golden: TensorRecord, target: TensorRecord) -> int | None:
        """Return the number of what made both; None if that is not known, or not the same."""
        made = self._made(golden, target)
        return made[0] if made[0] == made[1] else None

    def _made(self, golden: TensorRecord, target: TensorRecord) -> tuple[int | None, int | None]:
        keys = value_key(golden), value_key(target)
        return self.made[0].get(keys[0]), self.made[1].get(keys[1])

    def _remember(self, golden: TensorRecord, target: TensorRecord, *, in_order: bool) -> None:
        keys = value_key(golden), value_key(target)
        if golden.role is not target.role or golden.role is Role.INPUT or None in keys:
            return
        number = len(self.made[0])
        if keys[0] not in self.made[0] and keys[1] not in self.made[1]:
            self.made[0][keys[0]] = self.made[1][keys[1]] = number
        if in_order and self.made[0].get(keys[0]) == self.made[1].get(keys[1]):
            self.in_order.add(self.made[0][keys[0]])

    def _repeated(self, golden: TensorRecord, target: TensorRecord) -> Seen | None:
        """See what one run looks up once as what the other looks up for each of as many sequences."""
        sizes = (golden.shape or ())[:1] + (target.shape or ())[:1]
        is_passed = golden.role in (Role.INPUT, Role.OUTPUT)
        return repeated(golden, target) if is_passed and max(sizes, default=0) in self.sequences else None

    def _with_repeated(self, pair: TensorPair) -> TensorPair:
        found = self._repeated(pair.golden, pair.target) if pair.incomparable else None
        if found is None:
            return pair
        said = {"golden": found.golden, "target": found.target, "transform": found.transform}
        return replace(pair, **said, incomparable=None, joining=Joining.VIEW)

    def _of_one_making(self, golden: Node, target: Node) -> Candidates:
        """Yield the inputs that were made by what is the same."""
        for first in _in(golden, Role.INPUT):
            for second in _in(target, Role.INPUT):
                if self._made_by_one(first, second) is not None:
                    yield first, second, ()

    def _candidates(self, golden: Node, target: Node) -> Candidates:
        """Yield tensors that may be the same, the surest first."""
        kinds = kind_of(golden), kind_of(target)
        if OpKind.POSITIONS not in kinds or _give_alike(golden, target):
            yield from self._values_passed(golden, target)
        yield from self._of_one_making(golden, target)
        if OpKind.LOOKUP in kinds or not (_in(golden, Role.INPUT) or _in(target, Role.INPUT)):
            whole = (_whole_numbers(golden), _whole_numbers(target))
            yield from ((*pair, ()) for pair in zip(*whole, strict=False))
        for role in (Role.PARAMETER, Role.GRADIENT):
            yield from _by_key(golden, target, role)
        for role in (Role.INPUT, Role.OUTPUT):
            yield from _by_name(golden, target, role)

    def _values_passed(self, golden: Node, target: Node) -> Candidates:
        """Yield what two modules take and give; the gradient of what is not the same is not the same."""
        is_apart = self._are_given_apart(golden, target)
        yield from self._values(golden, target, Role.INPUT)
        if not (is_apart and golden.direction is Direction.BACKWARD):
            yield from self._values(golden, target, Role.OUTPUT)

    def _values(self, golden: Node, target: Node, role: Role) -> Candidates:
        """Yield what two modules take, or give, as one tensor each; else by order."""
        first, second = _in(golden, role), _in(target, role)
        times = self.golden.repeated.get(golden.name, 1), self.target.repeated.get(target.name, 1)
        if role is Role.OUTPUT and times[0] != times[1]:
            sides = whole_gradient("golden", first, times[0]), whole_gradient("target", second, times[1])
            yield from both(*sides)
        elif _are_streams(golden, target, role):
            yield from both(summed("golden", first, self.golden.sums), as_given(second))
        elif _are_streams(target, golden, role):
            yield from both(as_given(first), summed("target", second, self.target.sums))
        elif role is Role.OUTPUT and hands_on_bias(first) is not hands_on_bias(second):
            yield from both(with_bias("golden", first), with_bias("target", second))
        elif not _are_other_scores(first, second):
            yield from _firsts(first, second)


def _look_up(golden: Node, target: Node) -> bool:
    """Tell whether two nodes look up rows of a table."""
    return golden.direction is not Direction.BACKWARD and kind_of(golden) is kind_of(target) is OpKind.LOOKUP


def _treat_each_element(golden: Node, target: Node) -> bool:
    """Tell whether two nodes make each element of one, wherever it lies."""
    is_forward = golden.direction is not Direction.BACKWARD
    return is_forward and kind_of(golden) is kind_of(target) is OpKind.ACTIVATE


def _pair_given(own: TensorPairing, row: int, golden: Node, target: Node) -> None:
    """Pair what two operators of one argument take, if they share no name by which it was paired."""
    sides = own.unmatched_golden, own.unmatched_target
    left = [[each.record for each in side if is_given(each.record)] for side in sides]
    if [*map(len, left)] == [1, 1] and (found := seen(left[0][0], left[1][0])) is not None:
        own.pairs.insert(0, _pair(row, (golden, target), found, ()))
        own.drop_paired()


def pairer_of(golden: SliceTree, target: SliceTree) -> Pairer:
    """Look at two runs as their tensors have to be paired."""
    first, second = (Side(_sums(tree), _transposed(tree), repeated_inputs(tree)) for tree in (golden, target))
    return Pairer(first, second)


def _transposed(tree: SliceTree) -> frozenset[str]:
    """Return the classes of linear modules that keep their weights as [in, out]."""
    votes: Counter[str] = Counter()
    for node in tree.nodes:
        shapes = (record.shape or () for record in node.records(Role.PARAMETER))
        weights = [shape for shape in shapes if len(shape) == TWO_PARTS]
        values = (*_in(node, Role.INPUT)[:1], *_in(node, Role.OUTPUT)[:1])
        widths = tuple((record.shape or (0,))[-1] for record in values)
        if len(weights) == 1 and len(widths) == TWO_PARTS:
            votes[node.type_name] += (weights[0] == widths) - (weights[0] == widths[::-1])
    return frozenset(name for name, most in votes.items() if most > 0)


def pair_records(
    row: int, golden: tuple[Node, TensorRecord], target: tuple[Node, TensorRecord]
) -> list[TensorPair]:
    """Pair two tensors that are known to be the same, if they can be compared."""
    found = seen(golden[1], target[1])
    return [] if found is None else [_pair(row, (golden[0], target[0]), found, ())]


def with_views(pair: TensorPair) -> TensorPair:
    """Return a pair that can be compared by a view, where its shapes alone say that it cannot."""
    reason = pair.incomparable
    if reason is None or reason.id != "matching.incomparable.shapes_differ" or pair.joining is not None:
        return pair
    found = seen(pair.golden, pair.target)
    if found is None:
        return pair
    return replace(
        pair,
        golden=found.golden,
        target=found.target,
        transform=(*pair.transform, *found.transform),
        incomparable=None,
        joining=Joining.VIEW if _is_view(found.golden) or _is_view(found.target) else None,
    )


def _pair(row: int, nodes: tuple[Node, Node], found: Seen, how: Messages) -> TensorPair:
    transform = (*how, *found.transform)
    pair = TensorPair(row, nodes[0].name, nodes[1].name, found.golden, found.target, transform)
    is_view = how or _is_view(found.golden) or _is_view(found.target)
    return replace(pair, joining=Joining.VIEW) if is_view else pair


def _is_view(record: TensorRecord) -> bool:
    """Tell whether the values of a tensor are laid out anew as they are read."""
    return record.location is not None and bool(record.location.view)


def _in(node: Node, role: Role) -> list[TensorRecord]:
    """Return the tensors with fractions of a role; of what it gives not what it hands on."""
    records = list(floating(node.records(role)))
    if role is not Role.OUTPUT or len(records) < TWO_PARTS:
        return records
    given = set(map(value_key, node.records(Role.INPUT))) - {None}
    return [record for record in records if value_key(record) not in given] or records


def _whole_numbers(node: Node) -> list[TensorRecord]:
    return [each for each in tensors_of(node, Role.INPUT) if not is_floating(each.dtype)][:1]


def _is_of_vocabulary(node: Node) -> bool:
    return kind_of(node) is OpKind.LOOKUP or runs_through_head(node.path)


def _give_alike(golden: Node, target: Node) -> bool:
    """Tell whether two tables of positions are written alike: as cosine and sine, or as angles."""
    return len(_in(golden, Role.OUTPUT)) == len(_in(target, Role.OUTPUT))


def _are_streams(node: Node, other: Node, role: Role) -> bool:
    """Tell whether a node has the residual apart, which the other one has added already.

    It then has two tensors of one shape, other ones, where the other has one; of a norm that adds first this
    holds for what it takes alone, of anything else for both what it takes and gives.
    """
    if node.direction is Direction.BACKWARD:
        return False
    if role is Role.OUTPUT and kind_of(node) is OpKind.NORM:
        return False
    apart = [_has_two(node, one) for one in (Role.INPUT, Role.OUTPUT)]
    is_apart = _has_two(node, role) and (all(apart) or role is Role.OUTPUT)
    return is_apart and not _has_two(other, role)


def _has_two(node: Node, role: Role) -> bool:
    """Tell whether the first two tensors of a role have one shape and other values."""
    first = _in(node, role)[:TWO_PARTS]
    if len(first) < TWO_PARTS or first[0].shape != first[1].shape:
        return False
    keys = list(map(value_key, first))
    return None in keys or keys[0] != keys[1]


def _sums(tree: SliceTree) -> Sums:
    """Return what the norms that add first have added up."""
    sums: Sums = {}
    for node in tree.nodes:
        is_fused = kind_of(node) is OpKind.NORM and node.direction is not Direction.BACKWARD
        if is_fused and _has_two(node, Role.INPUT) and _has_two(node, Role.OUTPUT):
            keys = list(map(value_key, _in(node, Role.INPUT)[:TWO_PARTS]))
            if None not in keys:
                sums[keys[0], keys[1]] = _in(node, Role.OUTPUT)[1]
    return sums


def _are_other_scores(golden: Sequence[TensorRecord], target: Sequence[TensorRecord]) -> bool:
    """Tell whether one side gives shares of one and the other side what they are made from."""
    if not golden or not target or len(golden) == len(target):
        return False
    shares = [_are_shares(side[0]) for side in (golden, target)]
    return None not in shares and shares[0] is not shares[1]


def _are_shares(record: TensorRecord) -> bool | None:
    """Tell whether all elements lie between 0 and 1; None if that is not known."""
    told = record.statistics
    if told is None or told.minimum is None or told.maximum is None:
        return None
    return told.minimum >= 0.0 and told.maximum <= 1.0


def _firsts(golden: Sequence[TensorRecord], target: Sequence[TensorRecord]) -> Candidates:
    """Yield the first golden tensor with each that it may be; of equally many that fit, then all."""
    yield from ((golden[0], second, ()) for second in (target if golden else ()))
    if len(golden) == len(target) and _are_in_order(golden, target):
        yield from ((first, second, ()) for first, second in zip(golden, target, strict=True))


def _are_in_order(golden: Sequence[TensorRecord], target: Sequence[TensorRecord]) -> bool:
    """Tell whether what stands at one place can be compared, place by place."""
    return all(seen(first, second) for first, second in zip(golden, target, strict=True))


def _by_key(golden: Node, target: Node, role: Role) -> Candidates:
    """Yield the parameters of one name, then the only ones of either side."""
    first, second = list(floating(golden.records(role))), list(floating(target.records(role)))
    yield from ((one, other, ()) for one in first for other in second if one.key == other.key)
    if len(first) == len(second) == 1:
        yield first[0], second[0], ()


def _by_name(golden: Node, target: Node, role: Role) -> Candidates:
    """Yield what both call by one keyword, or have as a whole number or an argument of that name."""
    others = {record.key: record for record in target.records(role) if not record.key.isdigit()}
    for record in golden.records(role):
        other = others.get(record.key)
        if other is not None and record.is_tensor and other.is_tensor:
            yield record, other, ()
