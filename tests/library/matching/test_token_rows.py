"""Rows are compared by their tokens where one run was padded and the other was not, or was so elsewhere."""

from pathlib import Path
from time import process_time

import numpy as np
import pytest
from msgspec.structs import replace

from firstdrift.comparison.stages import measure_pairs
from firstdrift.dumps.storage.tensor_data import load_tensor
from firstdrift.dumps.storage.views import ROWS
from firstdrift.errors import TensorUnreadableError
from firstdrift.matching.implementations.pair_tensors import pairer_of
from firstdrift.matching.plan import SlicePlan, TensorPair
from firstdrift.matching.tensors import TensorPairing
from firstdrift.matching.tokens.aligned import aligned, exchanges_sequences
from firstdrift.matching.tokens.given import Recorded, surest
from firstdrift.matching.tokens.passes import passes_of_one_token
from firstdrift.matching.tokens.rows import CommonRows, common_rows
from firstdrift.matching.tokens.thresholds import MOST_PASSES
from firstdrift.matching.tree import build_tree
from firstdrift.model.node import Direction, Node, NodeKind
from firstdrift.model.slice import Coordinates, Slice, SliceListing
from firstdrift.model.tensor import DataLocation, Role, Statistics, TensorRecord, ViewStep

LISTING = SliceListing(Coordinates(), Path("made"))
WIDTH = 4

FLAT = [5, 7, 9, 4, 6]
LEFT = [[5, 7, 9], [0, 4, 6]]
RIGHT = [[5, 7, 9], [4, 6, 0]]
LEFT_MASK, RIGHT_MASK = [[1, 1, 1], [0, 1, 1]], [[1, 1, 1], [1, 1, 0]]
REAL_ZERO = [[5, 0, 9], [0, 4, 6]]


def saved(folder: Path, role: Role, key: str, array: np.ndarray) -> TensorRecord:
    file = folder / f"{len(list(folder.iterdir()))}.npy"
    np.save(file, array)
    told = Statistics(float(array.max()), float(array.min()), float(array.mean()), 1.0)
    return TensorRecord(role, key, str(array.dtype), array.shape, told, location=DataLocation(file, "npy"))


def run(
    folder: Path,
    ids: list[list[int]] | list[int],
    mask: list[list[int]] | None = None,
    **told: list[list[int]] | list[int],
) -> Slice:
    """Save a run that looks its tokens up, and the logits that it gives; each row is told by its token."""
    words = np.array(ids)
    given = words[..., None] * np.ones(WIDTH, "float32") / 8
    taken = [saved(folder, Role.INPUT, "0", words)]
    taken += [saved(folder, Role.INPUT, key, np.array(numbers)) for key, numbers in told.items()]
    if mask is not None:
        taken.append(saved(folder, Role.INPUT, "attention_mask", np.array(mask)))
    nodes = [
        Node(name, name, NodeKind.MODULE, class_name, Direction.FORWARD, 0, at, None, tuple(tensors))
        for at, (name, class_name, tensors) in enumerate(
            [
                ("embed_tokens", "Embedding", [*taken, saved(folder, Role.OUTPUT, "0", given)]),
                ("norm", "RMSNorm", [saved(folder, Role.INPUT, "0", given)]),
                ("lm_head", "Linear", [saved(folder, Role.OUTPUT, "0", given)]),
            ]
        )
    ]
    return Slice(LISTING, tuple(nodes))


def rows_of(golden: Slice, target: Slice) -> CommonRows | None:
    return common_rows((golden.nodes, target.nodes), (golden, target))


@pytest.mark.parametrize(
    ("target", "of_one_code", "are_common"),
    [
        pytest.param([[6, 7, 8], [3, 4, 5]], True, False, id="another-order-of-the-data"),
        pytest.param([[6, 7, 8], [3, 4, 5]], False, True, id="as-another-implementation-has-them"),
        pytest.param([6, 7, 8, 3, 4, 5], True, True, id="packed-by-an-engine"),
    ],
)
def test_another_order_of_a_batch_is_other_data_where_the_code_is_the_same(
    tmp_path: Path, target: list[list[int]] | list[int], of_one_code: bool, are_common: bool
) -> None:
    first, second = run(tmp_path, [[3, 4, 5], [6, 7, 8]]), run(tmp_path, target)
    rows = common_rows((first.nodes, second.nodes), (first, second), of_one_code=of_one_code)
    assert (rows is not None) == are_common


def test_two_sequences_in_one_row_exchange_none_of_the_rows_behind() -> None:
    both = Recorded((2, 4), (5, 7, 4, 6, 8, 9, 0, 0), ((1,) * 6 + (0, 0),), (0, 1, 0, 1, 0, 1, 0, 0))
    one = Recorded((2, 4), (5, 7, 0, 0, 8, 9, 0, 0), ((1, 1, 0, 0, 1, 1, 0, 0),), (0, 1, 0, 0, 0, 1, 0, 0))
    found = aligned([both], [one])
    assert found is not None
    assert [piece.rows for piece in found.pieces] == [(0, 0), (4, 4)]
    assert not exchanges_sequences(found)


def test_many_sequences_are_numbered_in_no_time() -> None:
    words = tuple(map(float, range(30_000)))
    flat = Recorded((len(words),), words, starts=frozenset(range(0, len(words), 2)))
    batch = Recorded((len(words) // 2, 2), words)
    started = process_time()
    assert aligned([flat], [batch]) is None  # of more pieces than can be moved
    assert process_time() - started < 5.0


@pytest.mark.parametrize(
    ("golden", "target"),
    [
        pytest.param((LEFT, LEFT_MASK), (FLAT, None), id="an-engine-drops-padding"),
        pytest.param((FLAT, None), (RIGHT, RIGHT_MASK), id="the-other-way-round"),
        pytest.param((LEFT, None), (FLAT, None), id="the-token-of-padding-tells-without-a-mask"),
        pytest.param((LEFT, LEFT_MASK), (RIGHT, RIGHT_MASK), id="padded-on-other-sides"),
        pytest.param((LEFT, LEFT_MASK), ([4, 6, 5, 7, 9], None), id="sequences-in-another-order"),
        pytest.param((REAL_ZERO, LEFT_MASK), ([5, 0, 9, 4, 6], None), id="a-mask-tells-a-real-word"),
    ],
)
def test_the_rows_of_the_tokens_that_both_have_are_compared(
    tmp_path: Path,
    golden: tuple[list[list[int]], list[list[int]] | None],
    target: tuple[list[list[int]], list[list[int]] | None],
) -> None:
    slices = run(tmp_path, *golden), run(tmp_path, *target)
    rows = rows_of(*slices)
    assert rows is not None
    seen = rows.see((slices[0].nodes, slices[1].nodes))
    for first, second in zip(*seen, strict=True):
        for one, other in zip(first.tensors[-1:], second.tensors[-1:], strict=True):
            assert one.location is not None
            assert other.location is not None
            assert np.array_equal(load_tensor(one.location), load_tensor(other.location))
            assert one.shape == load_tensor(one.location).shape


@pytest.mark.parametrize(
    ("key", "ids", "numbers"),
    [
        ("position_ids", [[5, 7], [4, 6], [8, 9]], [[0, 1]] * 3),
        ("where", [[5, 7], [5, 6], [5, 9]], [[0, 1]] * 3),
        ("token_type_ids", [[5, 7, 9], [4, 6, 8]], [[0, 1, 1], [0, 0, 1]]),
        ("loss_mask", [[5, 7, 9], [4, 6, 8]], [[0, 1, 1], [0, 0, 1]]),
    ],
)
def test_what_leaves_words_out_is_no_mask_of_padding(
    tmp_path: Path, key: str, ids: list[list[int]], numbers: list[list[int]]
) -> None:
    backwards = run(tmp_path, ids[::-1], **{key: numbers[::-1]})
    rows = rows_of(run(tmp_path, ids, **{key: numbers}), backwards)
    assert rows is not None
    assert rows.count == np.size(ids)


def test_of_several_masks_the_one_that_leaves_out_one_token_tells_padding(tmp_path: Path) -> None:
    types = [[0, 1, 1], [0, 0, 1]]
    rows = rows_of(run(tmp_path, LEFT, LEFT_MASK, token_type_ids=types), run(tmp_path, FLAT))
    assert rows is not None
    assert rows.count == len(FLAT)


@pytest.mark.parametrize(
    ("golden", "target"),
    [
        pytest.param((LEFT, LEFT_MASK), (LEFT, LEFT_MASK), id="the-same-rows"),
        pytest.param((LEFT, LEFT_MASK), ([5, 7, 9, 4, 8], None), id="another-token"),
        pytest.param(([[5, 0, 9], [1, 4, 6]], [[1, 0, 1], [0, 1, 1]]), ([5, 9, 4, 6], None), id="holes"),
    ],
)
def test_nothing_is_left_out_unless_the_tokens_prove_it(
    tmp_path: Path,
    golden: tuple[list[list[int]], list[list[int]] | None],
    target: tuple[list[list[int]], list[list[int]] | None],
) -> None:
    assert rows_of(run(tmp_path, *golden), run(tmp_path, *target)) is None


@pytest.mark.parametrize(
    ("logits_of", "fault", "found"), [("all", 0.5, True), ("last", 0.5, True), ("last", 0, False)]
)
def test_a_fault_in_a_row_that_is_compared_is_seen(
    tmp_path: Path, logits_of: str, fault: float, found: bool
) -> None:
    """An engine gives logits of the last tokens alone: the padded run has them at the ends of its rows."""
    golden, target = run(tmp_path, RIGHT, RIGHT_MASK), run(tmp_path, FLAT)
    tokens = np.array(FLAT if logits_of == "all" else [9, 6])
    logits = tokens[:, None] * np.ones(WIDTH, "float32") / 8
    logits[-1, 0] += fault
    head = target.nodes[-1].__class__(
        "lm_head", "lm_head", NodeKind.MODULE, "Linear", Direction.FORWARD, 0, 2, None,
        (saved(tmp_path, Role.OUTPUT, "0", logits),),
    )  # fmt: skip
    rows = rows_of(golden, target)
    assert rows is not None
    seen = rows.see((golden.nodes, (*target.nodes[:-1], head)))
    tensors = TensorPairing()
    pairer_of(build_tree(golden), build_tree(target)).pair(tensors, 0, seen[0][-1], seen[1][-1])
    pairs = tuple(map(rows.say, tensors.pairs))
    assert [said.id for said in pairs[0].transform][:1] == ["matching.transform.rows_of_tokens"]
    assert pairs[0].golden.statistics is None
    (measured,) = measure_pairs(SlicePlan(LISTING, LISTING, (), pairs, (), ()), 0, 1)
    assert measured.errors is not None
    assert (measured.errors.relative_l2 > 0) is found


def paired(slices: tuple[Slice, Slice], *tensors: tuple[TensorRecord, ...], of: str) -> list[TensorPair]:
    """Pair what a node of each side has beside, as rows of tokens are seen."""
    nodes = [Node("made", "made", NodeKind.MODULE, of, Direction.FORWARD, 0, 3, None, own) for own in tensors]
    sides = [(*one.nodes, node) for one, node in zip(slices, nodes, strict=True)]
    rows = common_rows((sides[0], sides[1]), slices)
    assert rows is not None
    seen = rows.see((sides[0], sides[1]))
    found = TensorPairing()
    found.pair(0, seen[0][-1], seen[1][-1])
    return list(map(rows.say, found.pairs))


def test_a_parameter_of_as_many_rows_as_there_are_tokens_keeps_its_statistics(tmp_path: Path) -> None:
    weight = saved(tmp_path, Role.PARAMETER, "weight", np.ones((len(FLAT), 3), "float32"))
    (pair,) = paired(
        (run(tmp_path, LEFT, LEFT_MASK), run(tmp_path, FLAT)), (weight,), (weight,), of="RMSNorm"
    )
    assert (pair.golden, pair.target, pair.transform, pair.tokens) == (weight, weight, (), ())


def test_a_matrix_that_a_product_multiplies_by_has_no_rows_of_tokens(tmp_path: Path) -> None:
    tokens = [saved(tmp_path, Role.INPUT, "0", np.ones((5, 5), "float32")) for _ in range(2)]
    matrix = saved(tmp_path, Role.INPUT, "1", np.ones((5, 3), "float32"))
    backwards = run(tmp_path, [4, 6, 5, 7, 9], cu_seqlens=[0, 2, 5])
    slices = run(tmp_path, FLAT, cu_seqlens=[0, 3, 5]), backwards
    pairs = paired(slices, (tokens[0], matrix), (tokens[1], matrix), of="matmul")
    assert [pair.golden is matrix and pair.target is matrix for pair in pairs] == [False, True]
    assert [one.id for one in pairs[0].transform] == ["matching.transform.rows_of_tokens"]


@pytest.mark.parametrize("is_saved", [True, False])
def test_statistics_hold_of_sequences_that_are_only_exchanged(tmp_path: Path, is_saved: bool) -> None:
    ends = [saved(tmp_path, Role.OUTPUT, "0", np.array([[9.0], [6.0]][::step])) for step in (1, -1)]
    golden, target = (end if is_saved else replace(end, location=None) for end in ends)
    slices = run(tmp_path, LEFT, LEFT_MASK), run(tmp_path, [[0, 4, 6], [5, 7, 9]], LEFT_MASK[::-1])
    (pair,) = paired(slices, (golden,), (target,), of="Linear")
    assert pair.incomparable is pair.golden.problem is None
    assert pair.golden.statistics == golden.statistics
    assert (pair.golden.digest, pair.tokens) == (None, ())


@pytest.mark.parametrize(("target", "said"), [([5, 7], ["matching.note.many_passes"]), (FLAT, [])])
def test_passes_that_are_too_many_to_be_read_are_said_to_go_by_their_numbers(
    tmp_path: Path, target: list[int], said: list[str]
) -> None:
    slices = run(tmp_path, FLAT), run(tmp_path, target)
    listings = [LISTING] * (MOST_PASSES + 1)
    together, notes = passes_of_one_token((listings, listings), lambda side, _: slices[side])
    assert (together, [note.id for note in notes]) == ([], said)


def test_rows_that_are_not_there_are_said_to_be_missing(tmp_path: Path) -> None:
    record = saved(tmp_path, Role.OUTPUT, "0", np.ones((4, 2), "float32"))
    assert record.location is not None
    location = DataLocation(record.location.file, "npy", view=(ViewStep(ROWS, (2, 3)),))
    with pytest.raises(TensorUnreadableError):
        load_tensor(location)


def test_many_pieces_of_one_row_take_no_time() -> None:
    places = tuple(map(float, range(0, 400_000, 2)))
    one = Recorded((len(places),), places, masks=((0.0,) + (1.0,) * (len(places) - 1),), positions=places)
    started = process_time()
    given = surest([one])
    assert process_time() - started < 5.0
    assert given is not None
    assert len(given.runs) == len(places) - 1


def test_many_other_tokens_take_no_time(tmp_path: Path) -> None:
    golden, target = np.arange(8000).reshape(4000, 2), np.arange(8000)[::-1].reshape(4000, 2)
    sides = run(tmp_path, golden.tolist()), run(tmp_path, target.tolist())
    started = process_time()
    assert rows_of(*sides) is None
    assert process_time() - started < 2.0
