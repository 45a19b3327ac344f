"""Which calls of ranks belong together, and which rank is off alone."""

import math
from pathlib import Path
from typing import Any

import pytest
from library.dumps.msprobe_samples import tensor, write_dump
from library.verdict.made_slices import Call, judge
from msgspec.structs import replace

from firstdrift import Report, compare
from firstdrift.metrics.measurement import RankError
from firstdrift.model.slice import Coordinates
from firstdrift.model.tensor import Role, TensorRecord
from firstdrift.parallel.point_to_point import Message, messages
from firstdrift.verdict.communication import explain, group_of
from firstdrift.verdict.judgement import Communication, SliceJudgement
from firstdrift.verdict.slice_findings import rank_alone
from firstdrift.wording.message import Message as Said


@pytest.mark.parametrize(
    ("errors", "alone"),
    [
        ([0.0, 0.5], 1),
        ([1e-7, 2e-7], None),
        ([0.5, 0.4], None),
        ([0.0, math.inf, 0.0], 1),
        ([0.0, None], None),
        ([0.5], 0),
        ([], None),
    ],
)
def test_a_rank_is_off_alone_if_all_others_agree(errors: list[float | None], alone: int | None) -> None:
    by_rank = [RankError(rank, error) for rank, error in enumerate(errors)]
    assert rank_alone(by_rank) == alone


def argument(key: str, dtype: str, scalar: str) -> TensorRecord:
    return TensorRecord(Role.INPUT, key, dtype, (), scalar=scalar)


def test_the_group_of_a_call_is_read_from_its_process_group() -> None:
    group = argument("group", "torch.ProcessGroup", "{'group_ranks': [0, 2], 'group_id': '77849d8c'}")
    assert group_of([argument("op", "str", "[9]"), group]) == (0, 2)
    assert group_of([]) == ()


@pytest.mark.parametrize(
    ("operator", "arguments", "found"),
    [
        ("send", [("dst", "3")], [Message("send", 3, "")]),
        ("irecv", [("1", "2")], [Message("irecv", 2, "")]),
        ("recv", [("async_op", "True")], []),
        ("all_reduce", [("dst", "3")], []),
        (
            "batch_isend_irecv",
            [("0.0.op", "isend"), ("0.0.peer", "1"), ("0.1.op", "irecv"), ("0.1.peer", "12")],
            [Message("isend", 1, "0.0."), Message("irecv", 12, "0.1.")],
        ),
        ("batch_isend_irecv", [("p2p_op_list.0.op", "isend"), ("p2p_op_list.0.peer", "-1")], []),
        ("batch_isend_irecv", [("0.0.peer", "1")], []),
    ],
)
def test_messages_of_a_call_are_read_from_its_arguments(
    operator: str, arguments: list[tuple[str, str]], found: list[Message]
) -> None:
    records = [argument(key, "str", said) for key, said in arguments]
    assert list(messages(f"Distributed.{operator}", records)) == found


NORM = 2.0
BATCH = "Distributed.batch_isend_irecv.0.forward"


def values(error: float) -> dict[str, Any]:
    return tensor(Norm=NORM * (1 + error), Max=1.5 * (1 + error))


def message(operator: str, peer: int, error: float = 0.0) -> dict[str, Any]:
    return {"class_type": "torch.distributed.P2POp", "tensor": values(error), "op": operator, "peer": peer}


def batch(*given: dict[str, Any], received: dict[int, float] | None = None) -> dict[str, Any]:
    """Return a call of several messages, some of which have other values afterwards."""
    after = [one | {"tensor": values((received or {}).get(at, 0.0))} for at, one in enumerate(given)]
    sent = [one if one["op"] == "isend" else other for one, other in zip(given, after, strict=True)]
    return {"input_args": [list(given)], "input_kwargs": {}, "output": [sent]}


def call(given: float, made: float) -> dict[str, Any]:
    return {"input_args": [values(given)], "input_kwargs": {}, "output": [values(made)]}


def isend(peer: int, error: float = 0.0) -> dict[str, Any]:
    return {"input_args": [values(error), {"type": "int", "value": peer}], "input_kwargs": {}, "output": []}


def healthy(name: str, record: dict[str, Any]) -> dict[str, Any]:
    """Return the record of the same call with the values that it should have."""
    if name == BATCH:
        given = [one | {"tensor": values(0)} for one in record["input_args"][0]]
        return {"input_args": [given], "input_kwargs": {}, "output": [given]}
    return isend(record["input_args"][1]["value"]) if "isend" in name else call(0, 0)


def compare_ranks(folder: Path, *ranks: dict[str, Any]) -> Report:
    for number, data in enumerate(ranks):
        golden = {name: healthy(name, record) for name, record in data.items()}
        write_dump(folder / "golden" / "step0" / f"rank{number}", golden, {})
        write_dump(folder / "target" / "step0" / f"rank{number}", data, {})
    return compare(folder / "golden", folder / "target")


def test_what_came_in_a_batch_is_the_fault_of_the_rank_that_sent_it(tmp_path: Path) -> None:
    first = {
        BATCH: batch(message("isend", 1), message("irecv", 1), received={1: 0.3}),
        "Functional.silu.0.forward": call(0.3, 0.3),
    }
    second = {
        "Functional.linear.0.forward": call(0, 0.3),
        BATCH: batch(message("irecv", 0), message("isend", 0, 0.3)),
    }
    findings = compare_ranks(tmp_path, first, second).findings
    assert findings.first_bad_node is not None
    assert findings.first_bad_node.target == "Functional.linear.0.forward"
    assert findings.rank_finding == Said.of("rank.began", rank=1)
    assert findings.suspects == ()


@pytest.mark.parametrize("culprit", [1, 2])
def test_what_began_with_a_message_of_a_batch_began_on_the_rank_that_sent_it(
    tmp_path: Path, culprit: int
) -> None:
    senders = [(1, 0.3 if culprit == 1 else 0.0), (2, 0.3 if culprit == 2 else 0.0)]
    received = {at: error for at, (_, error) in enumerate(senders)}
    first = {
        BATCH: batch(*(message("irecv", peer) for peer, _ in senders), received=received),
        "Functional.silu.0.forward": call(0.3, 0.3),
    }
    others = [
        {BATCH: batch(message("isend", 0, error)), "Functional.silu.0.forward": call(0, 0)}
        for _, error in senders
    ]
    findings = compare_ranks(tmp_path, first, *others).findings
    assert findings.rank_finding is not None
    assert findings.rank_finding.arguments["rank"] == culprit


def test_a_message_that_was_sent_as_it_should_be_and_came_otherwise_is_the_source(tmp_path: Path) -> None:
    first = {
        BATCH: batch(message("irecv", 1), message("isend", 1), received={0: 0.3}),
        "Functional.silu.0.forward": call(0.3, 0.3),
    }
    second = {BATCH: batch(message("isend", 0), message("irecv", 0)), "Functional.silu.0.forward": call(0, 0)}
    findings = compare_ranks(tmp_path, first, second).findings
    assert findings.first_bad_node is not None
    assert (findings.first_bad_node.coordinates.rank, findings.first_bad_node.target) == (0, BATCH)
    assert findings.rank_finding == Said.of("rank.began", rank=0)


def test_a_message_sent_alone_belongs_to_one_received_in_a_batch(tmp_path: Path) -> None:
    first = {
        BATCH: batch(message("irecv", 1), received={0: 0.3}),
        "Functional.silu.0.forward": call(0.3, 0.3),
    }
    second = {"Functional.linear.0.forward": call(0, 0.3), "Distributed.isend.0.forward": isend(0, 0.3)}
    report = compare_ranks(tmp_path, first, second)
    assert report.findings.first_bad_node is not None
    assert report.findings.first_bad_node.target == "Functional.linear.0.forward"


def said_of(report: Report, rank: int) -> list[tuple[str, int | None, int, bool, bool | None]]:
    (judged,) = [each.judgement for each in report.slices if each.judgement.coordinates.rank == rank]
    return [
        (each.operator, each.peer, each.number, each.given is not None, each.differs)
        for each in judged.communications
    ]


def test_each_message_of_a_batch_is_one_of_those_to_its_peer_in_order(tmp_path: Path) -> None:
    first = {
        "Functional.linear.0.forward": call(0, 0.3),
        "Distributed.isend.0.forward": isend(2),
        BATCH: batch(message("isend", 2, 0.3), message("irecv", 1), message("isend", 1), received={1: 0.2}),
    }
    second = {BATCH: batch(message("isend", 0), message("irecv", 0))}
    third = {BATCH: batch(message("irecv", 0), message("irecv", 0), received={1: 0.3})}
    report = compare_ranks(tmp_path, first, second, third)
    assert said_of(report, 0) == [
        ("isend", 2, 0, False, None),
        ("isend", 2, 1, True, None),
        ("irecv", 1, 0, False, True),
        ("isend", 1, 0, False, None),
    ]
    assert said_of(report, 2) == [("irecv", 0, 0, False, False), ("irecv", 0, 1, False, True)]


def rank_with(number: int, *communications: Communication) -> SliceJudgement:
    whole = judge(
        Call("Functional.silu.0.forward", inputs=[0.0], outputs=[0.0]),
        coordinates=Coordinates(step=0, rank=number),
    )
    return replace(whole.said, communications=communications)


def received(peer: int, number: int) -> Communication:
    return Communication(BATCH, "irecv", (), peer, number, given=None, differs=True, agrees=False)


def sends_what_differs(peer: int, number: int) -> Communication:
    bad = judge(Call("Functional.silu.0.forward", inputs=[0.0], outputs=[0.5])).said.origins[0]
    return Communication(
        "Distributed.isend.0.forward", "isend", (), peer, number, given=bad, differs=None, agrees=False
    )


def test_what_is_received_is_explained_by_what_the_peer_sent_as_its_k_th() -> None:
    assert len(explain([rank_with(0, received(1, 3)), rank_with(1, sends_what_differs(0, 3))])) == 1
    assert explain([rank_with(0, received(1, 3)), rank_with(1, sends_what_differs(0, 2))]) == []
    assert explain([rank_with(0, received(1, 3)), rank_with(2, sends_what_differs(0, 3))]) == []


def test_a_call_of_several_messages_is_explained_if_each_of_them_is() -> None:
    ranks = [rank_with(1, sends_what_differs(0, 0)), rank_with(2, sends_what_differs(0, 0))]
    both = rank_with(0, received(1, 0), received(2, 0))
    assert {each.node for each in explain([both, *ranks])} == {BATCH}
    assert explain([both, ranks[0]]) == []
