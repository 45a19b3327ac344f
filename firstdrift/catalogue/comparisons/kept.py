"""What is kept of a judged pair of slices, as it is packed: rows, pairs, and the rest of the plan."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from msgspec import DecodeError, Struct
from msgspec.msgpack import Decoder, Encoder
from msgspec.structs import replace

from firstdrift.catalogue.blocks import split
from firstdrift.catalogue.comparisons.measurements import Place
from firstdrift.catalogue.packing import pack, with_fields
from firstdrift.comparison.report import SliceResult
from firstdrift.matching.plan import Messages, NodeMatch, Origin, SlicePlan, TensorPair
from firstdrift.metrics.measurement import MeasurementKind
from firstdrift.model.slice import Slice
from firstdrift.model.tensor import TensorRecord
from firstdrift.verdict.judgement import Finding, PairJudgement, RollUp, RowJudgement, Verdict
from firstdrift.verdict.tree import TreeRow
from firstdrift.wording.message import Message

KINDS = tuple(MeasurementKind)


_ROWS_IN_A_BLOCK = 512
_PAIRS_IN_A_BLOCK = 512


class KeptRow(Struct, frozen=True, gc=False):
    """A row of the tree.

    Attributes:
        tree: where it is; likewise judgement, what is said of it.
        origin: how its nodes were matched; None if they were not. The others as in `NodeMatch`.
        paths: module paths of its nodes, by which it is found beside its names.
        first_pair: index of the first of its pairs of tensors; None if it has none. Likewise last_pair.
        kinds: what their numbers were computed from, a bit for each of `KINDS`.
    """

    tree: TreeRow
    judgement: RowJudgement
    origin: Origin | None
    score: float
    doubtful: bool
    match_reasons: Messages
    operands: tuple[str, ...]
    paths: tuple[str, ...]
    first_pair: int | None
    last_pair: int | None
    kinds: int

    @property
    def match(self) -> NodeMatch | None:
        """How its nodes were matched; None if they were not."""
        if self.origin is None:
            return None
        names = self.tree.golden, self.tree.target
        return NodeMatch(*names, self.origin, self.score, self.doubtful, self.match_reasons, self.operands)


def kinds_of(bits: int) -> frozenset[MeasurementKind]:
    """Tell which kinds the bits of a row stand for."""
    return frozenset(kind for place, kind in enumerate(KINDS) if bits >> place & 1)


class KeptPair(Struct, frozen=True, gc=False):
    """A pair of tensors.

    Attributes:
        row: index of its row; likewise match, of its match in the plan.
        golden_order: order of the golden node in its slice; likewise target_order.
        golden_position: place of the tensor in the golden node; likewise target_position.
        whole: the pair, if it is more than two tensors of these nodes: joined from several, for instance.
        transform: as in the plan; likewise incomparable.
        block: where its measurement is; likewise place.
    """

    row: int
    match: int
    golden_order: int
    golden_position: int
    target_order: int
    target_position: int
    whole: TensorPair | None
    transform: Messages
    incomparable: Message | None
    judgement: PairJudgement
    block: int
    place: int


def kept_rows(result: SliceResult, slices: tuple[Slice, Slice]) -> list[KeptRow]:
    """Put together what is kept of the rows of a slice pair."""
    golden, target = ({node.name: node.path for node in read.nodes} for read in slices)
    pairs = _pairs_of_rows(result)
    rows = zip(result.rows, result.judgement.rows, strict=True)
    return [
        KeptRow(
            row,
            judged,
            *_how_matched(result.plan, row),
            (*(golden.get(name, "") for name in row.golden), *(target.get(name, "") for name in row.target)),
            *pairs[row.index],
        )
        for row, judged in rows
    ]


def _how_matched(
    plan: SlicePlan, row: TreeRow
) -> tuple[Origin | None, float, bool, Messages, tuple[str, ...]]:
    if row.match is None:
        return None, 0.0, False, (), ()
    match = plan.matches[row.match]
    return match.origin, match.score, match.doubtful, match.reasons, match.operands


def _pairs_of_rows(result: SliceResult) -> Mapping[int, tuple[int | None, int | None, int]]:
    """Say of each row which its pairs are, the first and the last, and of what kinds."""
    bits = {kind: 1 << place for place, kind in enumerate(KINDS)}
    found: defaultdict[int, tuple[int | None, int | None, int]] = defaultdict(lambda: (None, None, 0))
    rows = row_of_match(result)
    for index, (pair, measured) in enumerate(zip(result.plan.pairs, result.measurements, strict=True)):
        first, _, kinds = found[rows[pair.match]]
        found[rows[pair.match]] = (index if first is None else first, index, kinds | bits[measured.kind])
    return found


def row_of_match(result: SliceResult) -> dict[int | None, int]:
    """Say in which row each match is."""
    return {row.match: row.index for row in result.rows}


def kept_pairs(result: SliceResult, slices: tuple[Slice, Slice]) -> Iterator[KeptPair]:
    """Put together what is kept of the pairs of tensors of a slice pair, but for where measurements are."""
    rows = row_of_match(result)
    golden, target = map(_Places, slices)
    for pair, judged in zip(result.plan.pairs, result.judgement.pairs, strict=True):
        of_golden = golden.own(pair.golden_node, pair.golden)
        of_target = target.own(pair.target_node, pair.target)
        is_whole = of_golden is None or of_target is None or _is_more(pair)
        golden_order, golden_position = of_golden or golden.named(pair.golden_node, pair.golden)
        target_order, target_position = of_target or target.named(pair.target_node, pair.target)
        yield KeptPair(
            rows[pair.match],
            pair.match,
            golden_order,
            golden_position,
            target_order,
            target_position,
            pair if is_whole else None,
            pair.transform,
            pair.incomparable,
            judged,
            *_NOWHERE_YET,
        )


_NOWHERE_YET: Place = (0, 0)


class _Places:
    """Where the tensors of a slice are: order of the node, and place in the node."""

    def __init__(self, read: Slice) -> None:
        self._nodes = {node.name: node for node in read.nodes}
        self._own = {
            (node.name, id(record)): (node.order, position)
            for node in read.nodes
            for position, record in enumerate(node.tensors)
            if record.shards is None
        }

    def own(self, node: str, record: TensorRecord) -> tuple[int, int] | None:
        """Return where a tensor is; None if it is none of the node's, or what several ranks hold."""
        return self._own.get((node, id(record)))

    def named(self, node: str, record: TensorRecord) -> tuple[int, int]:
        """Return where the tensor of a node is that is called as one that was made of it and others."""
        found = self._nodes[node]
        labels = [known.label for known in found.tensors]
        return found.order, labels.index(record.label)


def _is_more(pair: TensorPair) -> bool:
    return bool(pair.joining or pair.by_statistics or pair.tokens)


def row_blocks(rows: Sequence[KeptRow]) -> dict[str, list[Any]]:
    """Pack rows: the columns of their table."""
    blocks = dict(split(rows, _ROWS_IN_A_BLOCK))
    return {"first": list(blocks), "content": [pack(KeptRow, block) for block in blocks.values()]}


def pair_blocks(pairs: Sequence[KeptPair], later: Collection[str] = ()) -> dict[str, list[Any]]:
    """Pack pairs of tensors, likewise; fields that are known `later` are left out."""
    blocks = dict(split(pairs, _PAIRS_IN_A_BLOCK))
    return {
        "first": list(blocks),
        "incomparable": [
            sum(pair.judgement.verdict is Verdict.INCOMPARABLE for pair in block) for block in blocks.values()
        ],
        "content": [pack(KeptPair, block, later) for block in blocks.values()],
    }


PLACE_OF_MEASUREMENT: Final = ("block", "place")


def with_places(blocks: Mapping[str, list[Any]], places: Sequence[Place]) -> dict[str, list[Any]]:
    """Say in blocks of pairs where the measurement of each is, which had been left out."""
    pieces = zip(blocks["content"], pairwise([*blocks["first"], len(places)]), strict=True)
    return {**blocks, "content": [_with_places(packed, places[slice(*ends)]) for packed, ends in pieces]}


def _with_places(packed: bytes, places: Sequence[Place]) -> bytes:
    fields = zip(PLACE_OF_MEASUREMENT, zip(*places, strict=True), strict=True)
    return with_fields(KeptPair, packed, dict(fields))


def with_bad_row(rows: Sequence[KeptRow], bad: Finding, pair: int | None) -> list[KeptRow]:
    """Let a row be bad because of a pair of its tensors: in itself, and in what is said of those above."""
    changed = list(rows)
    before = rows[bad.row or 0]
    said = replace(before.judgement, verdict=Verdict.ERROR, reasons=bad.reasons, worst_pair=pair)
    changed[before.tree.index] = replace(before, judgement=said)
    above = before.tree.parent if before.judgement.verdict is not Verdict.ERROR else None
    while above is not None:
        row = rows[above]
        below = _one_more_error(row.judgement.below, before.judgement.verdict)
        changed[above] = replace(row, judgement=replace(row.judgement, below=below))
        above = row.tree.parent
    return changed


def _one_more_error(below: RollUp, instead_of: Verdict) -> RollUp:
    fewer = {name: getattr(below, name) - 1 for name in ("warning", "incomparable") if name == instead_of}
    return replace(below, error=below.error + 1, worst=Verdict.ERROR, **fewer)


def with_bad_pair(pairs: Sequence[KeptPair], bad: Finding, index: int | None) -> list[KeptPair]:
    """Let a pair of tensors be bad."""
    changed = list(pairs)
    if index is not None:
        said = replace(pairs[index].judgement, verdict=Verdict.ERROR, reasons=bad.reasons)
        changed[index] = replace(pairs[index], judgement=said)
    return changed


def pack_rest(plan: SlicePlan) -> bytes | None:
    """Write what a plan says beside matches, pairs and what slice pairs keep of it themselves.

    None if a name has characters that UTF-8 lacks.
    """
    rest = replace(
        plan, matches=(), pairs=(), unmatched_golden_tensors=(), unmatched_target_tensors=(), notes=()
    )
    try:
        return _ENCODER.encode(rest)
    except UnicodeEncodeError:
        return None


def unpack_rest(packed: bytes) -> SlicePlan | None:
    """Read what `pack_rest` wrote; None if records had other fields then."""
    try:
        return _DECODER.decode(packed)
    except DecodeError:
        return None


_ENCODER = Encoder(enc_hook=str)
_DECODER = Decoder(SlicePlan, dec_hook=lambda known, plain: known(plain))


def matches_of(rows: Sequence[KeptRow]) -> tuple[NodeMatch, ...]:
    """Put the matches of rows in the order of the plan."""
    matched = {row.tree.match: row.match for row in rows if row.match is not None}
    return tuple(match for _, match in sorted(matched.items()))
