"""What all slices show is said of each of them: in verdicts, rows and counts."""

from collections.abc import Sequence

from library.verdict.made_slices import Call, MadePair, make
from library.verdict.test_findings import logits
from messages import gaps_of

from firstdrift.model.slice import Coordinates
from firstdrift.verdict.findings import AllSlices, conclude
from firstdrift.verdict.judgement import NodeClass, SliceJudgement, Verdict
from firstdrift.verdict.series import with_bad_output
from firstdrift.verdict.tree import TreeRow

MODEL = "Module.model.Model.forward.0"
HEAD = "Module.lm_head.Linear.forward.0"


def token(number: int, error: float) -> MadePair:
    """Return a token of which the model gives logits, and nothing else was dumped."""
    head = Call(HEAD, parent=MODEL, outputs=[logits(error)])
    return make(head, Call(MODEL), coordinates=Coordinates(token=number))


def settled(*errors: float) -> list[SliceJudgement]:
    made = [token(number, error) for number, error in enumerate(errors)]
    return settle([one.judge().said for one in made], [one.rows for one in made])


def settle(
    judged: Sequence[SliceJudgement], rows: Sequence[Sequence[TreeRow]] = ((),) * 4
) -> list[SliceJudgement]:
    bad = AllSlices(judged).bad_outputs
    return [
        with_bad_output(one, bad[one.coordinates], tree) if one.coordinates in bad else one
        for one, tree in zip(judged, rows, strict=False)
    ]


def test_logits_that_only_other_tokens_show_to_be_bad_are_an_error_of_their_token() -> None:
    judged = settled(1e-7, 1e-7, 0.1, 0.1)
    assert [one.counts.error for one in judged] == [0, 0, 1, 1]
    assert [one.counts.passed for one in judged] == [1, 1, 0, 0]
    for one in judged[2:]:
        head = next(row for row in one.rows if row.worst_pair is not None and row.reasons)
        assert one.pairs[0].verdict is head.verdict is Verdict.ERROR
        assert one.pairs[0].reasons == head.reasons
        assert head.node_class is NodeClass.PROPAGATED
        (model,) = (row for row in one.rows if row.below.error)
        assert model.below.worst is Verdict.ERROR
    first = conclude(judged).first_bad_token
    assert first is not None
    assert first.reasons == judged[2].pairs[0].reasons
    assert gaps_of(judged[3].pairs[0].reasons[0], "token.after_bad")["token"] == 2


def test_what_is_settled_stays_as_it_is() -> None:
    judged = settled(1e-7, 1e-7, 0.1, 0.1)
    assert settle(judged) == judged
    assert conclude(judged) == conclude(
        [token(n, e).judge().said for n, e in enumerate((1e-7, 1e-7, 0.1, 0.1))]
    )


def test_healthy_tokens_are_left_alone() -> None:
    made = [token(number, error).judge().said for number, error in enumerate((1e-7, 2e-7, 1e-7))]
    assert all(one is other for one, other in zip(settle(made), made, strict=True))


def test_an_output_that_drifted_is_an_error_of_its_slice() -> None:
    calls = [
        Call("Torch.cos.0.forward", inputs=[0.0], outputs=[1e-7]),
        *(
            Call(f"Functional.linear.{n}.forward", inputs=[1e-7 * 2**n], outputs=[1e-7 * 2 ** (n + 1)])
            for n in range(15)
        ),
        Call(HEAD, inputs=[1e-7 * 2**15], outputs=[logits(1e-7 * 2**15)]),
    ]
    made = make(*calls)
    judged = settle([made.judge().said], [made.rows])
    assert conclude(judged).summary.id == "summary.drift"
    assert judged[0].counts.error == 1
    assert judged[0].logits is not None
    assert judged[0].logits.verdict is Verdict.ERROR
    assert judged[0].rows[judged[0].logits.row].node_class is NodeClass.PROPAGATED
