"""Turns: first come, first served, none lost and none made, whoever goes away."""

import asyncio
import random

import pytest
from coroutines import run
from soak import rounds

from firstdrift_server import turns as module
from firstdrift_server.turns import Turns


async def stays() -> bool:
    return False


async def is_gone() -> bool:
    return True


def test_they_are_handed_on_in_the_order_in_which_they_were_asked_for() -> None:
    async def all_of_it() -> list[int]:
        turns, order = Turns(1), list[int]()
        assert turns.take()

        async def visit(number: int) -> None:
            assert await turns.wait(10, stays)
            order.append(number)
            turns.give_back()

        visits = [asyncio.create_task(visit(number)) for number in range(20)]
        await asyncio.sleep(0)
        assert (turns.waiting, turns.taken) == (20, 1)
        turns.give_back()
        await asyncio.gather(*visits)
        assert (turns.waiting, turns.taken) == (0, 0)
        return order

    assert run(all_of_it()) == list(range(20))


def test_whoever_waits_too_long_is_gone_or_comes_when_too_many_wait_gets_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def all_of_it() -> None:
        turns = Turns(1)
        assert turns.take()
        assert not turns.take()
        assert not await turns.wait(0.01, stays)
        assert not await turns.wait(10, is_gone)
        monkeypatch.setattr(module, "MOST_WAITING", 0)
        assert not await turns.wait(10, stays)
        assert turns.waiting == 0
        turns.give_back()
        assert turns.take()

    run(all_of_it())


def test_none_is_lost_whatever_becomes_of_those_who_wait() -> None:
    async def all_of_it() -> None:
        chance, turns = random.Random(7), Turns(3)  # noqa: S311 - no secret

        async def visit() -> None:
            if await turns.wait(chance.uniform(0, 0.01), stays):
                try:
                    await asyncio.sleep(chance.uniform(0, 0.004))
                finally:
                    turns.give_back()

        for _ in range(rounds(20, 400)):
            visits = [asyncio.create_task(visit()) for _ in range(30)]
            for one in visits[::3]:
                await asyncio.sleep(chance.uniform(0, 0.001))
                one.cancel()
            await asyncio.gather(*visits, return_exceptions=True)
        await asyncio.sleep(0.05)
        assert (turns.waiting, turns.taken) == (0, 0)

    run(all_of_it())
