"""What each engine calls things."""

import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from messages import gaps_of

from firstdrift.errors import RolloutUnreadableError
from firstdrift.rollout.fields import SideName, sequences_of
from firstdrift.rollout.sequences import TokenSequence

NAMES = (
    *(
        "logprobs",
        "output_token_logprobs",
        "responses",
        "tokens",
        "prompts",
        "prompt",
        "loss_mask",
        "id",
        "uid",
    ),
    *("routed_experts", "choices", "outputs", "response", "body", "meta_info", "logprob", "token", "content"),
    *("token_logprobs", "step", "7"),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["", "x", "NaN", "token_id:7"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=20,
)
LOG_PROBS = [-0.5, -1.25, -0.125]
IDS = [7, 8, 9]
TEXTS = ["a", "b", "c"]

FORMS: dict[str, dict[str, Any]] = {
    "verl": {"uid": "p", "prompts": [1, 2], "responses": IDS, "rollout_log_probs": LOG_PROBS},
    "slime": {"index": 3, "tokens": [1, 2, *IDS], "response_length": 3, "rollout_log_probs": LOG_PROBS},
    "OpenAI chat": {
        "id": "chat",
        "choices": [
            {
                "logprobs": {
                    "content": [
                        {"token": t, "logprob": v, "top_logprobs": []}
                        for t, v in zip(TEXTS, LOG_PROBS, strict=True)
                    ]
                }
            }
        ],
    },
    "OpenAI completions": {
        "id": "cmpl",
        "choices": [{"logprobs": {"tokens": TEXTS, "token_logprobs": LOG_PROBS, "text_offset": [0, 1, 2]}}],
    },
    "vLLM with token ids": {
        "id": "cmpl",
        "choices": [
            {"logprobs": {"tokens": [f"token_id:{one}" for one in IDS], "token_logprobs": LOG_PROBS}}
        ],
    },
    "vLLM RequestOutput": {
        "request_id": "0",
        "prompt_token_ids": [1, 2],
        "outputs": [
            {
                "index": 0,
                "token_ids": IDS,
                "logprobs": [
                    {"1": {"logprob": -9.0}, str(one): {"logprob": value, "rank": 1, "decoded_token": text}}
                    for one, value, text in zip(IDS, LOG_PROBS, TEXTS, strict=True)
                ],
            }
        ],
    },
    "SGLang": {
        "text": "abc",
        "meta_info": {
            "id": "x",
            "output_token_logprobs": [
                [value, one, text] for value, one, text in zip(LOG_PROBS, IDS, TEXTS, strict=True)
            ],
        },
    },
    "batch": {
        "custom_id": "one",
        "response": {
            "status_code": 200,
            "body": {"choices": [{"logprobs": {"tokens": TEXTS, "token_logprobs": LOG_PROBS}}]},
        },
    },
}


def read(found: object, side: SideName = "rollout") -> TokenSequence:
    (only,) = sequences_of(found, side, "file", 1)
    return only


@pytest.mark.parametrize("form", FORMS)
def test_each_engine_is_read(form: str) -> None:
    found = read(FORMS[form])
    assert found.log_probs.tolist() == LOG_PROBS
    if found.tokens is not None:
        assert found.tokens.tolist() == IDS
    assert found.tokens is not None or found.texts == tuple(TEXTS)


def test_choices_of_a_request_have_names_of_their_own() -> None:
    choice = {"logprobs": {"token_logprobs": LOG_PROBS}}
    found = list(sequences_of({"id": "x", "choices": [choice, choice]}, "rollout", "file", 1))
    assert [one.names["id"] for one in found] == ["x/0", "x/1"]


def test_each_side_takes_its_own_field_of_a_row_that_has_both() -> None:
    both = {"rollout_log_probs": [-1.0], "old_log_probs": [-2.0]}
    assert read(both, "rollout").field == "rollout_log_probs"
    assert read(both, "trainer").field == "old_log_probs"


def test_what_is_missing_is_told_from_what_is_not_a_number() -> None:
    found = read({"logprobs": [None, math.nan, -1.0, "-Infinity"]})
    assert found.missing.tolist() == [True, False, False, False]
    assert found.log_probs[3] == -math.inf


def test_a_mask_of_the_whole_sequence_ends_with_that_of_the_answer() -> None:
    found = read({"logprobs": [-1.0, -1.0], "loss_mask": [0, 0, 0, 1, 0]})
    assert found.counts.tolist() == [True, False]


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        pytest.param([1], "not_an_object", id="a list"),
        pytest.param({"choices": [3]}, "not_an_object", id="a choice that is a number"),
        pytest.param({"text": "x"}, "no_log_probs", id="no field that is known"),
        pytest.param({"logprobs": 3}, "no_list", id="a number"),
        pytest.param({"logprobs": {"content": None}}, "no_list", id="none were asked for"),
        pytest.param({"logprobs": [[]]}, "no_list", id="an empty triple"),
        pytest.param({"logprobs": [{"logprob": -1}, 3]}, "no_list", id="forms mixed"),
        pytest.param({"logprobs": ["x"]}, "no_numbers", id="text"),
        pytest.param({"logprobs": [-1, [2]]}, "no_numbers", id="a list inside"),
        pytest.param({"logprobs": [0.7, -1]}, "above_zero", id="probabilities"),
        pytest.param({"logprobs": [True]}, "no_numbers", id="a claim"),
        pytest.param({"logprobs": [-1, False]}, "no_numbers", id="a denial"),
        pytest.param({"logprobs": [-1, "-0.1"]}, "no_numbers", id="a number as text"),
        pytest.param({"logprobs": [-1], "responses": [2**63]}, "no_ids", id="a token beyond signed numbers"),
        pytest.param(
            {"logprobs": [{"1": {"logprob": -1}, "2": {"logprob": -1}}]}, "sampled_not_known", id="top"
        ),
        pytest.param({"logprobs": [-1], "responses": [1.5]}, "no_ids", id="a token that is no whole number"),
        pytest.param(
            {"logprobs": [-1] * 10**6, "responses": [*[1] * 999_999, "x" * 10**8]}, "no_ids", id="a long text"
        ),
        pytest.param({"logprobs": [-1], "routed_experts": [[[1], ["x"]]]}, "no_ids", id="experts of text"),
        pytest.param({"logprobs": [-1], "responses": [10**30]}, "no_ids", id="a token beyond 64 bits"),
        pytest.param({"logprobs": [-1], "responses": [1, 2]}, "other_number", id="more tokens"),
        pytest.param({"logprobs": [-1, -1], "loss_mask": [1]}, "no_mask", id="a short mask"),
        pytest.param({"logprobs": [-1], "loss_mask": [{}]}, "no_mask", id="a mask of objects"),
        pytest.param({"logprobs": [-1, -1], "loss_mask": 1}, "no_mask", id="a mask that is a number"),
        pytest.param({"logprobs": [-1], "routed_experts": "AAAA"}, "experts_as_text", id="encoded experts"),
        pytest.param({"logprobs": [-1], "routed_experts": [1]}, "experts_shape", id="a list of experts"),
        pytest.param({"logprobs": [-1], "routed_experts": [[[1]], [[1, 2]]]}, "no_ids", id="ragged experts"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_reason(found: object, reason: str) -> None:
    with pytest.raises(RolloutUnreadableError) as refused:
        read(found)
    assert refused.value.message.id == f"rollout.row.{reason}"


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6))
def test_whatever_a_row_holds_it_is_read_or_refused(found: dict[str, Any]) -> None:
    with suppress(RolloutUnreadableError):
        for one in sequences_of(found, "rollout", "file", 1):
            assert len(one.counts) == len(one.missing) == len(one.log_probs)


def test_it_is_said_which_value_is_no_log_probability() -> None:
    with pytest.raises(RolloutUnreadableError) as refused:
        read({"logprobs": [-1.0, 0.75]})
    assert gaps_of(refused.value.message, "rollout.row.above_zero") == {
        "field": "logprobs",
        "value": 0.75,
        "token": 1,
    }
