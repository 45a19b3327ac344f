"""What is said first of several tokens, ranks and steps."""

import itertools

import numpy as np
import pytest
from library.verdict.made_slices import SHAPE, Call, judge, make, values_of, with_error
from messages import gaps_of, ids_of
from msgspec.structs import replace

from firstdrift.exports.report_json import finding_object
from firstdrift.model.node import Direction
from firstdrift.model.slice import Coordinates
from firstdrift.verdict.comparable import prompt_starts
from firstdrift.verdict.findings import conclude
from firstdrift.verdict.judgement import Findings, NodeClass, SliceJudgement, Verdict
from firstdrift.wording.message import Message

U32 = 2.0**-24

EMBEDDING = "Module.embed_tokens.Embedding.forward.0"
HEAD = "Module.lm_head.Linear.forward.0"
LINEAR = "Functional.linear.0.forward"


def token_ids(*ids: int) -> np.ndarray:
    return np.array([ids], np.int64)


def logits(error: float, top: tuple[int, int] = (3, 3)) -> tuple[np.ndarray, np.ndarray]:
    """Return logits with an error; each side has its top where it is told, by a hair where these differ."""
    golden = values_of("logits", (1, 64))
    target = with_error(golden, error, "noise")
    golden[0, top], target[0, top] = 9.0, 9.0
    golden[0, top[0]] = target[0, top[1]] = np.nextafter(np.float32(9), np.float32(10))
    return golden, target


def token(
    number: int | None,
    *,
    error: float = 1e-7,
    fault: float = 0.0,
    ids: tuple[int, int] = (7, 7),
    top: tuple[int, int] = (3, 3),
    before_input: float = 0.0,
) -> SliceJudgement:
    """Judge one generated token: operators, an embedding, layers, the head.

    Args:
        number: which token.
        error: of the logits.
        fault: output error of an operator whose inputs agree.
        ids: token ids the two sides were given.
        top: token ids the two sides choose.
        before_input: output error of an operator that runs before the embedding.
    """
    embedded = 1.3 if ids[0] != ids[1] else 0.0
    calls = [
        Call("Torch.cos.0.forward", inputs=[0.0], outputs=[before_input]),
        Call(EMBEDDING, inputs=[(token_ids(ids[0]), token_ids(ids[1]))], outputs=[embedded]),
        Call(LINEAR, inputs=[embedded], outputs=[max(fault, embedded)]),
        Call(HEAD, inputs=[error], outputs=[logits(max(error, fault, embedded), top)]),
    ]
    return judge(*calls, coordinates=Coordinates(token=number)).said


def logits_only(number: int, error: float, top: tuple[int, int] = (3, 3)) -> SliceJudgement:
    """Judge a token of which the logits alone were dumped."""
    return judge(Call(HEAD, outputs=[logits(error, top)]), coordinates=Coordinates(token=number)).said


def bad_token(findings: Findings) -> int | None:
    return findings.first_bad_token.coordinates.token if findings.first_bad_token else None


# --- tokens with their layers ---------------------------------------------------------------------------


def test_the_first_token_in_which_an_error_begins_is_the_first_bad_one() -> None:
    findings = conclude([token(n, fault=0.3 if n >= 2 else 0.0, error=1e-7) for n in range(5)])
    assert bad_token(findings) == 2
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.target == LINEAR
    assert findings.first_bad_node.coordinates.token == 2
    assert findings.first_bad_token is not None
    assert findings.first_bad_token.target == HEAD
    (reason,) = findings.first_bad_token.reasons
    assert gaps_of(reason, "token.origin")["node"] == LINEAR
    assert gaps_of(reason, "size.number")["error"] == pytest.approx(0.2, rel=0.05)
    assert findings.summary.id == "summary.bad_token_and_node"
    assert gaps_of(findings.summary, "finding.token") == {"number": 2}
    assert gaps_of(findings.summary, "finding.node")["bad_node"] == LINEAR


def test_the_order_in_which_tokens_are_given_does_not_matter() -> None:
    tokens = [token(n, fault=0.3 if n >= 2 else 0.0) for n in range(5)]
    assert conclude(tokens[::-1]) == conclude(tokens)


def test_healthy_tokens_are_clean() -> None:
    findings = conclude([token(n) for n in range(4)])
    assert findings == Findings(Message.of("summary.agree"))


def test_an_error_that_does_not_reach_the_logits_makes_no_bad_token() -> None:
    calls = [
        Call("Torch.cos.0.forward", inputs=[0.0], outputs=[0.0]),
        Call(LINEAR, inputs=[0.0], outputs=[0.3]),
        Call(HEAD, inputs=[0.0], outputs=[logits(0.0)]),
    ]
    findings = conclude([judge(*calls, coordinates=Coordinates(token=0)).said])
    assert findings.first_bad_token is None
    assert findings.first_bad_node is not None


def test_weak_signs_in_a_token_are_confirmed_by_the_next() -> None:
    def layered(number: int, odd: float) -> SliceJudgement:
        calls = [
            Call(
                f"Module.layers.{layer}.mlp.MLP.forward.0",
                inputs=[U32],
                outputs=[(odd if layer == 3 else 9) * U32],
            )
            for layer in range(6)
        ]
        calls.append(Call(HEAD, inputs=[U32], outputs=[logits(20 * U32)]))
        return judge(*calls, coordinates=Coordinates(token=number)).said

    doubtful, clear = layered(0, 20), layered(1, 60)
    assert conclude([doubtful]).first_bad_node is None
    findings = conclude([doubtful, clear])
    assert bad_token(findings) == 0
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.module == "layers.3.mlp"
    assert findings.first_bad_node.reasons[0].id == "finding.confirmed"
    assert conclude([doubtful, layered(1, 9)]).first_bad_node is None


# --- tokens from their logits alone ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([0.01, 0.012, 0.09, 0.08, 0.1], 2),
        ([0.01, 0.012, 0.011, 0.013], None),
        ([0.02, 0.022, 0.085, 0.021, 0.022], None),
        ([0.01, 0.012, 0.2, 0.011, 0.012], 2),
        ([0.02, 0.022, 0.085], None),
        ([0.02, 0.022, 0.095], 2),
        ([0.9, 0.9], 0),
        ([0.01], None),
    ],
    ids=[
        "rises and stays",
        "even",
        "one a little apart",
        "one far apart",
        "last a little apart",
        "last apart",
        "bad from the start",
        "alone",
    ],
)
def test_logits_alone_are_held_against_the_tokens_before(errors: list[float], expected: int | None) -> None:
    golden = values_of("logits", (1, 64), "bfloat16")
    findings = conclude(
        [
            judge(
                Call(HEAD, outputs=[(golden, with_error(golden, error, "noise"))]),
                coordinates=Coordinates(token=number),
            ).said
            for number, error in enumerate(errors)
        ]
    )
    assert bad_token(findings) == expected
    assert findings.first_bad_node is None
    if expected is not None:
        assert "finding.token_unlocated" in ids_of(findings.summary)


def test_no_rounding_of_float32_makes_an_error_of_a_percent() -> None:
    assert bad_token(conclude([logits_only(0, 0.01)])) == 0
    assert (
        bad_token(conclude([logits_only(n, error) for n, error in enumerate((1e-7, 1e-7, 2.5e-7))])) is None
    )


# --- inputs that differ -----------------------------------------------------------------------------------


def test_other_token_ids_are_another_input_and_no_fault() -> None:
    findings = conclude([token(0), token(1, ids=(7, 8)), token(2, ids=(1, 1), fault=0.5)])
    assert findings.first_bad_token is None
    assert findings.first_bad_node is None
    first, after = findings.input_differs
    assert gaps_of(first.reason, "input.differs_by")["node"] == "embed_tokens"
    assert gaps_of(first.reason, "input.first_mismatch") == {"golden": 7, "target": 8, "index": 0}
    assert (first.coordinates.token, first.golden, first.tensor) == (1, EMBEDDING, "input.0")
    assert (after.coordinates.token, after.reason) == (2, Message.of("input.earlier_token"))
    assert gaps_of(findings.summary, "summary.other_inputs")["where"] == Coordinates(token=1).name()


def test_another_choice_of_token_is_another_input_of_the_next() -> None:
    findings = conclude([logits_only(0, 1e-7), logits_only(1, 1e-7, top=(3, 5)), logits_only(2, 0.9)])
    assert [(found.coordinates.token, found.reason) for found in findings.input_differs] == [
        (2, Message.of("input.token_before", golden=3, target=5))
    ]
    assert bad_token(findings) != 2


def test_what_was_wrong_before_the_inputs_parted_is_still_found() -> None:
    findings = conclude([token(0), token(1, fault=0.4, top=(3, 5)), token(2, ids=(3, 5))])
    assert bad_token(findings) == 1
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.coordinates.token == 1
    assert [found.coordinates.token for found in findings.input_differs] == [2]


def test_token_ids_that_agree_overrule_logits_that_do_not() -> None:
    teacher_forced = conclude([token(0, top=(3, 5)), token(1), token(2, fault=0.4)])
    assert teacher_forced.input_differs == ()
    assert bad_token(teacher_forced) == 2


def prompted(
    number: int, length: int, *, fault: float = 0.0, top: tuple[int, int] = (3, 3)
) -> SliceJudgement:
    """Judge a token for which the model was given so many others; their ids were not recorded."""
    calls = [
        Call(EMBEDDING, outputs=[(values_of("e", (length, 8)), values_of("e", (length, 8)))]),
        Call(LINEAR, inputs=[0.0], outputs=[fault]),
        Call(HEAD, inputs=[1e-7], outputs=[logits(max(1e-7, fault), top)]),
    ]
    return judge(*calls, coordinates=Coordinates(token=number)).said


def test_what_was_generated_for_one_prompt_is_no_input_of_the_next() -> None:
    first = [prompted(0, 6), prompted(1, 1, top=(3, 5)), prompted(2, 1, fault=0.5)]
    second = [prompted(3, 4), prompted(4, 1, fault=0.4), prompted(5, 1)]
    findings = conclude([*first, *second])
    assert [found.coordinates.token for found in findings.input_differs] == [2]
    assert bad_token(findings) == 4
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.coordinates.token == 4
    assert prompt_starts([*first, *second]) == (Coordinates(token=3),)


def test_a_prompt_read_in_chunks_is_one() -> None:
    chunks = [prompted(0, 8), prompted(1, 8), prompted(2, 3), prompted(3, 1), prompted(4, 1)]
    assert prompt_starts(chunks) == ()


def test_a_prompt_where_the_other_run_still_generates_is_another_input() -> None:
    apart = [
        Call(EMBEDDING, outputs=[(values_of("e", (1, 8)), values_of("e", (6, 8)))]),
        Call(HEAD, inputs=[1e-7], outputs=[logits(0.9)]),
    ]
    second = judge(*apart, coordinates=Coordinates(token=1)).said
    findings = conclude([prompted(0, 6), second])
    assert (bad_token(findings), findings.first_bad_node) == (None, None)
    (difference,) = findings.input_differs
    assert difference.reason == Message.of(
        "input.other_length", tensor="output.0", node="embed_tokens", golden=(1, 8), target=(6, 8)
    )
    assert prompt_starts([prompted(0, 6), second]) == ()


def test_equal_ids_that_give_another_number_of_vectors_are_no_other_input() -> None:
    ids = token_ids(1, 2, 3)
    calls = [
        Call(EMBEDDING, inputs=[(ids, ids)], outputs=[(values_of("e", (3, 8)), values_of("e", (2, 8)))]),
        Call(HEAD, inputs=[1e-7], outputs=[logits(1e-7)]),
    ]
    assert conclude([judge(*calls, coordinates=Coordinates(token=0)).said]).input_differs == ()


def test_an_error_that_begins_before_the_input_is_read_is_found() -> None:
    findings = conclude([token(0, before_input=0.2, ids=(7, 8))])
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.target == "Torch.cos.0.forward"


def test_a_prompt_of_another_length_is_another_input() -> None:
    prompts = token_ids(1, 2, 3), token_ids(1, 2, 3, 4)
    shapes = values_of("e", (3, 8)), values_of("e", (4, 8))
    calls = [
        Call(EMBEDDING, inputs=[prompts], outputs=[shapes]),
        Call(HEAD, inputs=[(shapes[0][:1], shapes[1][:1])], outputs=[logits(0.8)]),
    ]
    findings = conclude([judge(*calls, coordinates=Coordinates(token=0)).said])
    assert findings.first_bad_node is None
    assert findings.first_bad_token is None
    (difference,) = findings.input_differs
    assert difference.reason.id == "input.differs_by"


def test_other_numbers_as_the_models_input_are_another_input() -> None:
    pixels = values_of("p", SHAPE), with_error(values_of("p", SHAPE), 0.5, "n")
    calls = [
        Call("Functional.conv2d.0.forward", inputs=[pixels], outputs=[0.5]),
        Call(LINEAR, inputs=[0.5], outputs=[0.6]),
    ]
    judged = judge(*calls)
    assert judged.origins == []
    assert judged.said.input_difference is not None
    assert judged.said.counts.error == 0
    assert judged.said.counts.warning == 4
    assert {pair.reasons for pair in judged.said.pairs} == {(Message.of("pair.input_differs"),)}


def test_a_step_after_another_input_is_not_judged() -> None:
    def step(number: int, ids: tuple[int, int]) -> SliceJudgement:
        calls = [
            Call(
                EMBEDDING, inputs=[(token_ids(ids[0]), token_ids(ids[1]))], outputs=[float(ids[0] != ids[1])]
            ),
            Call(LINEAR, inputs=[0.0], outputs=[0.5]),
        ]
        return judge(*calls, coordinates=Coordinates(step=number, rank=0)).said

    assert conclude([step(0, (1, 2)), step(1, (1, 1))]).first_bad_node is None
    assert conclude([step(0, (1, 1)), step(1, (1, 2))]).first_bad_node is not None


def test_what_a_fault_had_reached_is_no_second_origin_where_it_grows_between_children() -> None:
    model, block = "Module.model.Model.forward.0", "Module.model.block.Block.forward.0"
    linear = "Module.model.block.linear.Linear.forward.0"
    calls = [
        Call("Functional.silu.0.forward", inputs=[0.0], outputs=[0.0]),
        Call(linear, block, inputs=[0.0], outputs=[0.1]),
        Call("Module.model.block.out.Linear.forward.0", block, inputs=[0.9], outputs=[0.9]),
        Call(block, model, inputs=[0.0], outputs=[0.9]),
        Call(model, inputs=[0.0], outputs=[0.9]),
    ]
    assert judge(*calls).origins == [linear]
    assert judge(*calls[:1], *calls[2:]).origins == [block]


# --- ranks ------------------------------------------------------------------------------------------------


ALL_REDUCE = "Distributed.all_reduce.0.forward"


def rank(number: int, *, step: int = 0, fault: float = 0.0, received: float = 0.0) -> SliceJudgement:
    calls = [
        Call("Functional.silu.0.forward", inputs=[0.0], outputs=[0.0]),
        Call(ALL_REDUCE, inputs=[0.0], outputs=[received]),
        Call(LINEAR, inputs=[received], outputs=[max(fault, received)]),
    ]
    return judge(*calls, coordinates=Coordinates(step=step, rank=number)).said


def test_what_is_received_from_another_rank_is_its_fault() -> None:
    findings = conclude([rank(0, received=0.2), rank(1, fault=0.3)])
    assert findings.first_bad_node is not None
    assert (findings.first_bad_node.coordinates.rank, findings.first_bad_node.target) == (1, LINEAR)
    assert findings.rank_finding == Message.of("rank.began", rank=1)
    assert findings.suspects == ()


def test_communication_is_named_where_no_rank_has_another_fault() -> None:
    findings = conclude([rank(0, received=0.2), rank(1, received=0.2)])
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.target == ALL_REDUCE


def test_what_is_received_from_a_rank_with_another_input_is_no_fault() -> None:
    other = [
        Call("Functional.conv2d.0.forward", inputs=[0.7], outputs=[0.7]),
        Call(ALL_REDUCE, inputs=[0.7], outputs=[0.7]),
    ]
    findings = conclude([judge(*other, coordinates=Coordinates(step=0, rank=0)).said, rank(1, received=0.2)])
    assert findings.first_bad_node is None
    assert [found.coordinates.rank for found in findings.input_differs] == [0]


def drifting(number: int, *, given: float, received: float) -> SliceJudgement:
    """A rank whose dump begins with what it gives to others, so that nothing on it is a source."""
    calls = [
        Call(ALL_REDUCE, inputs=[given], outputs=[received]),
        Call(LINEAR, inputs=[received], outputs=[received]),
    ]
    return judge(*calls, coordinates=Coordinates(step=0, rank=number)).said


def test_an_all_reduce_that_is_bad_everywhere_began_on_the_rank_whose_input_was() -> None:
    ranks = [drifting(0, given=0.0, received=0.3), drifting(1, given=0.5, received=0.3)]
    findings = conclude([*ranks, drifting(2, given=0.0, received=0.3)])
    assert findings.rank_finding is not None
    assert findings.rank_finding.arguments["rank"] == 1


def test_an_all_reduce_whose_inputs_agree_on_all_ranks_is_the_source() -> None:
    findings = conclude([drifting(rank, given=0.0, received=0.3) for rank in range(2)])
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.target == ALL_REDUCE
    assert findings.rank_finding == Message.of("rank.began_on_several", ranks=(0, 1))


def test_an_earlier_step_comes_first_whatever_the_rank() -> None:
    findings = conclude([rank(0, step=1, fault=0.5), rank(1, step=0, fault=0.1), rank(0), rank(1, step=1)])
    assert findings.first_bad_node is not None
    assert (findings.first_bad_node.coordinates.step, findings.first_bad_node.coordinates.rank) == (0, 1)


def off_by(error: float, *, token: int, rank: int | None, on_rank: int | None = None) -> SliceJudgement:
    """A token of a rank of which only the logits were compared."""
    coordinates = Coordinates(step=0, rank=rank, token=token)
    said = judge(Call(HEAD, outputs=[logits(error, (3, 3))]), coordinates=coordinates).said
    return replace(said, logits=said.logits and replace(said.logits, on_rank=on_rank))


def test_a_bad_token_that_no_node_explains_says_on_which_ranks_it_shows() -> None:
    healthy = [off_by(0.0, token=0, rank=number) for number in range(2)]
    late = off_by(0.5, token=2, rank=0)
    alone = conclude([*healthy, off_by(0.5, token=1, rank=1), late])
    assert (alone.first_bad_node, alone.rank_finding) == (None, Message.of("rank.shows_first", rank=1))
    alike = conclude([*healthy, off_by(0.5, token=1, rank=1), off_by(0.6, token=1, rank=0)])
    assert (alike.first_bad_node, alike.rank_finding) == (
        None,
        Message.of("rank.shows_on_several", ranks=(0, 1)),
    )
    one = conclude([off_by(0.0, token=0, rank=0), off_by(0.5, token=1, rank=0)])
    assert one.first_bad_token is not None
    assert one.rank_finding is None


def test_of_merged_ranks_the_one_whose_logits_are_off_is_named_and_of_which_dump() -> None:
    healthy, bad = off_by(0.0, token=0, rank=None), off_by(0.5, token=1, rank=None, on_rank=3)
    assert conclude([healthy, bad]).rank_finding == Message.of("rank.shows", rank=3)
    assert bad.logits is not None
    of_golden = replace(bad, logits=replace(bad.logits, golden_ranks=(2, 3)))
    assert conclude([healthy, of_golden]).rank_finding == Message.of("rank.shows_on_golden", rank=3)


def test_where_golden_ranks_were_merged_and_none_stands_out_that_is_said() -> None:
    said = judge(Call(LINEAR, inputs=[0.0], outputs=[0.5])).said
    origins = tuple(replace(origin, golden_ranks=(0, 1)) for origin in said.origins)
    assert conclude([replace(said, origins=origins)]).rank_finding == Message.of(
        "rank.golden_merged", ranks="0+1"
    )


def test_one_rank_alone_makes_no_finding_of_ranks() -> None:
    assert conclude([rank(0, fault=0.3)]).rank_finding is None


# --- the sentence -------------------------------------------------------------------------------------------


def test_slow_growth_is_called_drift() -> None:
    errors = [1e-6 * 2.5**n for n in range(13)]
    calls = [
        Call(f"Module.layers.{n}.Block.forward.0", inputs=[before], outputs=[after])
        for n, (before, after) in enumerate(itertools.pairwise(errors))
    ]
    findings = conclude([judge(*calls).said])
    assert findings.first_bad_node is None
    assert gaps_of(findings.summary, "summary.drift")["where"] == Coordinates(step=0).name()
    assert gaps_of(findings.summary, "size.number")["error"] == pytest.approx(0.06, rel=0.05)


def test_without_slices_nothing_is_said_to_agree() -> None:
    assert conclude([]).summary == Message.of("summary.no_slices")


def test_without_values_nothing_is_said_to_agree() -> None:
    assert conclude([judge(Call(LINEAR)).said]).summary == Message.of("summary.no_values")


OF_OTHER_SHAPES = (values_of("x"), values_of("x", (3, 3)))


@pytest.mark.parametrize("rules", ["firstdrift", "msit"])
def test_what_could_not_be_compared_is_not_said_to_agree(rules: str) -> None:
    incomparable = Call(LINEAR, inputs=[OF_OTHER_SHAPES], outputs=[OF_OTHER_SHAPES])
    said = conclude([make(incomparable).judge(rules).said]).summary
    assert said == Message.of("summary.none_comparable", pairs=2)
    for pairs in ([], [OF_OTHER_SHAPES]):
        call = Call("Module.m.M.forward.0", inputs=[0.0, *pairs], outputs=[0.0])
        said = conclude([make(call).judge(rules).said]).summary
        known = {"summary.agree"} if pairs else {"summary.equal_bits"}
        assert set(ids_of(said)) & {*known, "summary.rules_pass"}
        if pairs:
            assert gaps_of(said, "summary.beside_incomparable")["tensors"] == 1


def test_errors_without_a_node_to_name_are_not_said_to_agree() -> None:
    nan = (np.ones(SHAPE, np.float32), np.full(SHAPE, np.nan, np.float32))
    findings = conclude([judge(Call("Functional.linear.0.backward", inputs=[nan], outputs=[0.0])).said])
    assert findings.first_bad_node is None
    assert findings.summary == Message.of("summary.unlocated", pairs=1)


def test_under_the_rules_of_peers_nothing_is_found_that_they_do_not_flag() -> None:
    def layered(number: int, odd: float, rules: str) -> SliceJudgement:
        errors = [9 * U32, 9 * U32, 9 * U32, odd, 9 * U32]
        calls = [
            Call(f"Module.layers.{layer}.mlp.MLP.forward.0", inputs=[U32], outputs=[error])
            for layer, error in enumerate(errors)
        ]
        calls.append(Call("Module.norm.Norm.forward.0", inputs=[0.02], outputs=[0.02]))
        return make(*calls, coordinates=Coordinates(token=number)).judge(rules).said

    doubtful = layered(0, 20 * U32, "msit")
    assert conclude([doubtful]) == Findings(Message.of("summary.rules_pass", rules="msit"))
    assert conclude([layered(0, 20 * U32, "firstdrift")]) != conclude([doubtful])
    found = conclude([doubtful, layered(1, 0.5, "msit")]).first_bad_node
    assert found is not None
    assert found.coordinates.token == 1


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (Call(LINEAR, inputs=[0.0], outputs=[0.5]), "finding.source"),
        (Call(LINEAR, inputs=[0.0, 0.5], outputs=[0.5]), "finding.weights"),
        (
            Call(LINEAR, inputs=[0.0], outputs=[(np.ones(4), np.full(4, np.nan))]),
            "finding.non_finite_in",
        ),
        (Call(LINEAR, inputs=[0.0, (1, 2)], outputs=[0.5]), "reason.argument"),
    ],
)
def test_the_sentence_says_what_is_wrong(call: Call, said: str) -> None:
    before = Call("Functional.silu.0.forward", inputs=[0.0], outputs=[0.0])
    findings = conclude([judge(before, call).said])
    assert findings.summary.id == "summary.bad_node"
    assert gaps_of(findings.summary, "finding.node")["bad_node"] == LINEAR
    assert set(ids_of(findings.summary)) & {said, "verbatim"}


def test_the_sentence_says_in_which_of_several_slices_the_node_is() -> None:
    good = make(Call(LINEAR, inputs=[0.0], outputs=[0.0]), coordinates=Coordinates(step=0)).judge().said
    bad = make(Call(LINEAR, inputs=[0.0], outputs=[0.5]), coordinates=Coordinates(step=1)).judge().said
    summary = conclude([good, bad]).summary
    assert gaps_of(summary, "summary.bad_node_in")["where"] == Coordinates(step=1).name()


def test_a_node_of_the_backward_pass_is_said_to_be_one() -> None:
    backward = "Module.layers.1.out.Linear.backward.0"
    findings = conclude([judge(Call(backward, inputs=[0.0], outputs=[0.5])).said])
    assert gaps_of(findings.summary, "finding.backward_of") == {"node": "layers.1.out"}
    assert findings.first_bad_node is not None
    assert finding_object(findings.first_bad_node) | {
        "module": "layers.1.out",
        "direction": "backward",
        "place": Message.of("finding.backward_of", node="layers.1.out"),
    } == finding_object(findings.first_bad_node)


def test_an_operator_whose_name_says_the_pass_is_not_said_to_be_of_it_again() -> None:
    backward = "Functional.layer_norm.6.backward"
    bad = conclude([judge(Call(backward, inputs=[0.0], outputs=[0.5])).said]).first_bad_node
    assert bad is not None
    assert (bad.place, bad.direction) == (backward, Direction.BACKWARD)


def test_suspects_are_other_faults_of_the_same_step_the_strongest_first() -> None:
    calls = [
        Call("Functional.silu.0.forward", inputs=[0.0], outputs=[0.0]),
        *(
            Call(f"Functional.gelu.{n}.forward", inputs=[0.0], outputs=[error])
            for n, error in enumerate((1e-3, 0.1, 0.9, 1e-2))
        ),
    ]
    findings = conclude([judge(*calls).said])
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.target == "Functional.gelu.0.forward"
    assert [suspect.target for suspect in findings.suspects] == [
        "Functional.gelu.2.forward",
        "Functional.gelu.1.forward",
        "Functional.gelu.3.forward",
    ]
    assert {suspect.node_class for suspect in findings.suspects} == {NodeClass.SOURCE}


def test_a_peers_rules_flag_tokens_by_their_logits() -> None:
    healthy, broken = (
        make(
            Call(LINEAR, inputs=[0.0], outputs=[0.5]),
            Call(HEAD, inputs=[0.0], outputs=[logits(error)]),
            coordinates=Coordinates(token=number),
        ).judge("msit")
        for number, error in ((0, 1e-5), (1, 0.5))
    )
    findings = conclude([healthy.said, broken.said])
    assert bad_token(findings) == 1
    assert findings.first_bad_token is not None
    assert findings.first_bad_token.verdict == Verdict.ERROR
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.coordinates.token == 0


# --- what the sentence says -----------------------------------------------------------------------------


def test_a_bad_token_before_that_of_the_first_bad_node_is_not_lost() -> None:
    before = [logits_only(number, error) for number, error in enumerate((1e-7, 1e-7, 1e-3))]
    tokens = [*before, token(3, fault=0.3)]
    findings = conclude(tokens)
    assert bad_token(findings) == 2
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.coordinates.token == 3
    assert gaps_of(findings.summary, "summary.bad_token_then_node")["where"] == Coordinates(token=3).name()
    assert gaps_of(findings.summary, "finding.token") == {"number": 2}
    assert "finding.token_unlocated" in ids_of(findings.summary)
    assert gaps_of(findings.summary, "finding.node")["bad_node"] == LINEAR


def test_an_output_that_is_no_logits_is_not_called_so() -> None:
    calls = [Call("Module.reduce.Sum.forward.0", outputs=[0.1 if n == 2 else 1e-7]) for n in range(3)]
    findings = conclude([judge(call, coordinates=Coordinates(token=n)).said for n, call in enumerate(calls)])
    assert findings.first_bad_token is not None
    (reason,) = findings.first_bad_token.reasons
    assert "off.output" in ids_of(reason)
    assert gaps_of(reason, "token.stands_out")["before"] == pytest.approx(1.1e-7, rel=0.1)


def test_one_token_alone_is_not_called_the_first_without_saying_so() -> None:
    summary = conclude([token(2, fault=0.3)]).summary
    assert summary.id == "summary.bad_token_and_node"
    assert "finding.only_token" in ids_of(summary)


@pytest.mark.parametrize(("error", "agrees"), [(0.01, True), (0.1, False)])
def test_logits_that_are_far_off_are_not_said_to_agree(error: float, agrees: bool) -> None:
    calls = [
        Call(LINEAR, inputs=[error], outputs=[error]),
        Call(HEAD, inputs=[error], outputs=[logits(error)]),
    ]
    first = Call("Module.attention.Attention.forward.0", inputs=[0.0], outputs=[error / 2])
    made = make(first, *calls, dtype="bfloat16")
    findings = conclude([made.judge().said])
    assert findings.first_bad_node is None
    assert ("summary.agree" in ids_of(findings.summary)) is agrees
    assert ("off.logits" in ids_of(findings.summary)) is not agrees


# --- what the model is given differs slightly -------------------------------------------------------------

CONV = "Functional.conv2d.0.forward"


@pytest.mark.parametrize("given", [2e-6, 1e-5, 5e-4])
def test_an_input_of_the_model_that_is_slightly_off_switches_no_judging_off(given: float) -> None:
    healthy = [
        Call(CONV, inputs=[given], outputs=[given]),
        Call(LINEAR, inputs=[given], outputs=[2 * given]),
        Call(HEAD, inputs=[2 * given], outputs=[logits(3 * given)]),
    ]
    found = conclude([judge(*healthy).said])
    assert (found.first_bad_node, found.suspects, found.input_differs) == (None, (), ())
    fault = [
        healthy[0],
        Call(LINEAR, inputs=[given], outputs=[0.4]),
        Call(HEAD, inputs=[0.4], outputs=[logits(0.4)]),
    ]
    named = conclude([judge(*fault).said]).first_bad_node
    assert named is not None
    assert named.target == LINEAR


def test_what_the_model_is_given_explains_what_reads_it_late() -> None:
    """An image is read by one module when the words were embedded already."""
    model = "Module.model.Model.forward.0"
    ids = token_ids(7)
    calls = [
        Call(EMBEDDING, model, inputs=[(ids, ids)], outputs=[0.0]),
        Call("Module.model.patch.Conv2d.forward.0", model, inputs=[5e-5], outputs=[5e-5]),
        Call(HEAD, model, inputs=[5e-5], outputs=[logits(1e-4)]),
    ]
    assert judge(*calls, Call(model, inputs=[5e-5], outputs=[1e-4])).origins == []
    assert judge(*calls, Call(model, inputs=[0.0], outputs=[1e-4])).origins == [model]
