"""Which sequence belongs to which, and what has no partner."""

from pathlib import Path

import pytest
from library.rollout.rollout_rows import compare_rows, row

from firstdrift.errors import RolloutUnreadableError, SettingsError
from firstdrift.rollout.compare import compare_rollout
from firstdrift.rollout.pair import Pairing


def paired(folder: Path, rollout: list[dict[str, object]], trainer: list[dict[str, object]]) -> Pairing:
    return compare_rows(folder, rollout, trainer).pairing


def answer(*tokens: int, **more: object) -> dict[str, object]:
    return {"logprobs": [-1.0] * len(tokens), "responses": list(tokens), **more}


def test_sequences_of_one_id_belong_together_whatever_their_order(tmp_path: Path) -> None:
    ours = [answer(1, 2, request_id=name) for name in "abc"]
    found = paired(tmp_path, ours, [*ours[::-1], answer(3, request_id="d")])
    assert found.by.arguments == {"field": "request_id"}
    assert found.pairs == ((0, 2), (1, 1), (2, 0))
    assert (found.rollout_only, found.trainer_only) == ((), (3,))


def test_answers_to_one_prompt_are_told_apart_by_their_tokens(tmp_path: Path) -> None:
    ours = [answer(1, uid="p"), answer(2, uid="p"), answer(3, uid="p")]
    theirs = [answer(3, uid="p"), answer(1, uid="p"), answer(9, uid="p")]
    found = paired(tmp_path, ours, theirs)
    assert found.pairs == ((0, 1), (1, 2), (2, 0))


def test_two_answers_that_fit_none_are_left_without_a_partner(tmp_path: Path) -> None:
    ours = [answer(1, uid="p"), answer(2, uid="p"), answer(3, uid="p")]
    theirs = [answer(7, uid="p"), answer(8, uid="p"), answer(3, uid="p")]
    found = paired(tmp_path, ours, theirs)
    assert found.pairs == ((2, 2),)
    assert (found.rollout_only, found.trainer_only) == ((0, 1), (0, 1))


def test_steps_keep_equal_names_apart(tmp_path: Path) -> None:
    ours = [answer(1, uid="p", step=1), answer(1, uid="p", step=2)]
    assert paired(tmp_path, ours, ours[::-1]).pairs == ((0, 1), (1, 0))


def test_without_names_in_common_tokens_and_prompts_tell(tmp_path: Path) -> None:
    ours = [answer(1, id="a", prompts=[5]), answer(1, id="b", prompts=[6])]
    theirs = [answer(1, prompts=[6]), answer(1, prompts=[5])]
    found = paired(tmp_path, ours, theirs)
    assert found.by.id == "rollout.by.tokens"
    assert found.pairs == ((0, 1), (1, 0))


def test_padding_is_no_part_of_the_tokens(tmp_path: Path) -> None:
    padded = answer(1, 2, 0, 0, response_mask=[1, 1, 0, 0])
    assert paired(tmp_path, [padded], [answer(1, 2, response_mask=[1, 1])]).pairs == ((0, 0),)


def test_without_names_and_tokens_the_order_counts(tmp_path: Path) -> None:
    ours = [{"logprobs": [-1.0]}, {"logprobs": [-2.0]}]
    found = compare_rows(tmp_path, ours, ours)
    assert found.pairing.by.id == "rollout.by.order"
    assert found.counts.tokens_unknown == 2
    with pytest.raises(RolloutUnreadableError) as refused:
        compare_rows(tmp_path, ours, ours[:1])
    assert refused.value.message.id == "rollout.not_paired"


def test_a_side_is_never_compared_with_itself(tmp_path: Path) -> None:
    compare_rows(tmp_path, [row([-1.0])], [row([-1.0])])
    with pytest.raises(SettingsError) as refused:
        compare_rollout(tmp_path / "r.jsonl", tmp_path / "r.jsonl")
    assert refused.value.message.id == "rollout.same_numbers"


def test_both_sides_can_stand_in_one_row(tmp_path: Path) -> None:
    both = row([-1.0, -2.0], "rollout_log_probs", old_log_probs=[-1.0, -2.5])
    compare_rows(tmp_path, [both], [both])
    found = compare_rollout(tmp_path / "r.jsonl", tmp_path / "r.jsonl")
    assert found.statistics.max_abs == 0.5


@pytest.mark.parametrize("length", [1, 3])
def test_what_is_left_out_is_counted(tmp_path: Path, length: int) -> None:
    ours = row([-1.0, None, -1.0, -1.0], id=1, response_mask=[1, 1, 1, 1])
    theirs = row(
        [-1.0, -1.0, -1.0, -1.0, -1.0][: 4 + length], id=1, response_mask=[1, 1, 0, 1, 1][: 4 + length]
    )
    found = compare_rows(tmp_path, [ours], [theirs, row([-1.0], id=2)]).counts
    assert (found.tokens, found.missing, found.unmasked) == (2, 1, 1)
    assert (found.other_lengths, found.trainer_only) == (1, 1)


def test_nothing_is_compared_behind_another_token(tmp_path: Path) -> None:
    found = compare_rows(
        tmp_path,
        [answer(1, 2, 3, 4, id=1)],
        [{"logprobs": [-1.0, -1.0, -9.0, -9.0], "responses": [1, 2, 9, 4], "id": 1}],
    )
    (pair,) = found.pairs
    assert (pair.other_token, pair.first_found, pair.compared.tolist()) == (2, 2, [0, 1])
    assert found.verdict == "tokens off"
    assert found.summary.id == "rollout.summary.other_token"


def test_texts_are_compared_where_there_are_no_ids(tmp_path: Path) -> None:
    def chat(*tokens: str) -> dict[str, object]:
        content = [{"token": token, "logprob": -1.0} for token in tokens]
        return {"id": "x", "choices": [{"logprobs": {"content": content}}]}

    (pair,) = compare_rows(tmp_path, [chat("a", "b")], [chat("a", "c")]).pairs
    assert pair.other_token == 1
