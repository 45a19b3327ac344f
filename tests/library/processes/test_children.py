"""A child process that reads dumps may die, hang or want too much: whoever asked gets a sentence."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import child_questions as questions
import psutil
import pytest
from messages import refuses

from firstdrift.errors import BusyError, DumpUnreadableError, LimitError
from firstdrift.processes import children as module
from firstdrift.processes.children import Children
from firstdrift.processes.limits import Limits
from firstdrift.wording.message import Message, verbatim
from firstdrift.wording.text import text_of

MEMORY = 600 * 2**20


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    with Children(1, Limits(memory=MEMORY, seconds=1.0)) as children:
        yield children


def test_a_question_is_answered_in_another_process_which_is_kept_for_the_next(children: Children) -> None:
    first = children.ask(None, questions.who)
    assert first != os.getpid()
    assert children.ask(None, questions.who) == first


def test_an_error_of_ours_arrives_with_all_its_parts(children: Children) -> None:
    with pytest.raises(DumpUnreadableError, match="cannot be read") as caught:
        children.ask(None, questions.complain, Path("/somewhere"))
    error = caught.value
    assert (error.message, error.advice) == (verbatim("cannot be read"), verbatim("Look elsewhere"))
    assert error.path == Path("/somewhere")


def test_a_mistake_of_ours_arrives_as_what_it_is_with_where_it_was_made(children: Children) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        children.ask(None, questions.make_a_mistake)
    assert "in make_a_mistake" in caught.value.__notes__[0]


@pytest.mark.parametrize(
    ("question", "given", "reason"),
    [
        (questions.take_memory, (2 * MEMORY,), "processes.much_memory"),
        (questions.burn, (), "processes.much_processor_time"),
        (questions.burn_in_one_call, (), "processes.much_processor_time"),
        (questions.sleep, (60.0,), "processes.took_long"),
        (questions.crash, (), "processes.ended.signal"),
        (questions.kill_itself, (), "processes.ended.killed"),
    ],
)
def test_a_child_that_wants_too_much_or_dies_is_replaced_and_the_reason_told(
    children: Children,
    question: Callable[..., Any],
    given: tuple[Any, ...],
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_PATIENCE", 3.0 if question is questions.sleep else 90.0)
    before = children.ask(None, questions.who)
    with refuses(LimitError, reason):
        children.ask(None, question, *given)
    assert children.ask(None, questions.who) != before
    assert not psutil.pid_exists(before)


def test_the_question_after_a_large_one_is_answered_too() -> None:
    with Children(1, Limits(memory=MEMORY, seconds=30.0)) as patient:
        for _ in range(3):
            assert patient.ask(None, questions.take_memory, MEMORY // 2) == MEMORY // 2
            for _ in range(3):
                assert patient.ask(None, questions.who)


def test_a_limit_is_of_what_a_question_takes_and_not_of_what_the_process_had_before() -> None:
    """Libraries may set aside gigabytes of address space on machines of many cores."""
    with Children(1, Limits(memory=2**23, seconds=5.0)) as little:
        assert little.ask(None, questions.take_memory, 2**10) == 2**10
        with refuses(LimitError, "processes.much_memory"):
            little.ask(None, questions.take_memory, 2**28)


def test_many_who_ask_at_once_are_told_each_their_own_reason() -> None:
    with Children(4, Limits(memory=MEMORY, seconds=30.0)) as many, ThreadPoolExecutor(4) as threads:

        def reason(_: int) -> str:
            with pytest.raises(LimitError) as caught:
                many.ask(None, questions.kill_itself)
            return caught.value.message.id

        assert set(threads.map(reason, range(24))) == {"processes.ended.killed"}


def test_a_child_that_nobody_asked_for_long_ends_and_another_answers() -> None:
    with Children(1, Limits(memory=MEMORY, seconds=5.0), idle=0.1) as some:
        for _ in range(3):
            child = some.ask(None, questions.who)
            with suppress(psutil.NoSuchProcess):
                psutil.Process(child).wait(10)


def test_a_file_that_becomes_shorter_while_it_is_mapped_is_said_to_have(
    children: Children, tmp_path: Path
) -> None:
    file = tmp_path / "tensor.bin"
    file.write_bytes(bytes(2**20))
    with refuses(LimitError, "processes.ended.file_became_shorter"):
        children.ask(None, questions.cut_short_while_mapped, file)


def test_a_child_reads_nothing_outside_the_roots_of_its_question(children: Children, tmp_path: Path) -> None:
    for name in ("mine", "theirs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("hello world")
    mine, theirs = tmp_path / "mine/file", tmp_path / "theirs/file"
    assert children.ask([tmp_path / "mine"], questions.beginning, mine) == "hello"
    refused = children.ask([tmp_path / "mine"], questions.beginning, theirs)
    assert refused == text_of(Message.of("files.leads_out"))
    assert children.ask(None, questions.beginning, theirs) == "hello"


def test_whoever_asks_while_all_are_busy_waits_and_then_is_told(
    children: Children, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_WAIT_SECONDS", 0.01)
    with children._free, refuses(LimitError, "processes.busy"):
        children.ask(None, questions.who)
    assert children.ask(None, questions.who)


def test_those_who_would_wait_behind_many_others_are_told_at_once(children: Children) -> None:
    with ExitStack() as held:
        for _ in range(4):
            held.enter_context(children._waiting)
        with refuses(BusyError, "processes.busy"):
            children.ask(None, questions.who)
    assert children.ask(None, questions.who)


def test_nothing_is_left_when_the_children_are_closed() -> None:
    with Children(2, Limits(memory=MEMORY, seconds=5.0)) as some:
        child = some.ask(None, questions.who)
    assert not psutil.pid_exists(child)
