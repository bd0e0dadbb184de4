"""Benches that are asked for at the same time: one for a page, four in all, none without an owner."""

import asyncio
from contextlib import asynccontextmanager
from itertools import count
from multiprocessing import active_children, get_context

import pytest

from hwprofiles import ConfigError
from orrery.workbench import benches
from orrery.workbench.subject import parsed_subject

SUBJECT = parsed_subject({"model": "lenet5", "cluster": "titanx-4", "batch": 64, "strategies": ["data"]})


def never_ready(pipe, folder):
    """A bench that says of each request which one it was, and goes on working."""
    for number in count(1):
        request = pipe.recv()
        pipe.send((request.job, "progress", number))


@asynccontextmanager
async def running(monkeypatch):
    """Benches that load nothing, and are all ended."""
    monkeypatch.setattr(benches, "CONTEXT", get_context("fork"))
    monkeypatch.setattr(benches, "bench", never_ready)
    others = set(active_children())
    held = benches.Benches("")
    try:
        yield held, lambda: len([each for each in active_children() if each not in others])
    finally:
        held.close()


async def begun(held, *owners):
    """Jobs of comparisons that are asked for at once, or the reason of a refusal."""
    asked = (held.begin(owner, "compare", SUBJECT) for owner in owners)
    return await asyncio.gather(*asked, return_exceptions=True)


async def until(condition):
    """Wait until a condition holds."""
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


def test_comparisons_of_one_page_at_once_have_one_process(monkeypatch):
    """All but the last are cancelled, and the last is cancelled with its process."""

    async def scenario():
        async with running(monkeypatch) as (held, processes):
            *first, last = await begun(held, *["one-page"] * 4)
            assert [job.events for job in first] == [[("cancelled", None)]] * 3
            await until(lambda: last.events == [("progress", 1)])
            await until(lambda: processes() == 1)
            held.cancel(last)
            await until(lambda: processes() == 0)

    asyncio.run(scenario())


def test_pages_that_ask_at_once_are_counted(monkeypatch):
    async def scenario():
        async with running(monkeypatch) as (held, processes):
            answers = await begun(held, *(f"page-{i}" for i in range(6)))
            assert [isinstance(each, benches.Job) for each in answers] == [True] * 4 + [False] * 2
            assert processes() == 4
            with pytest.raises(ConfigError, match="4 pages compare already"):
                raise answers[-1]
            held.cancel(answers[1])
            (answer,) = await begun(held, "page-5")
            assert isinstance(answer, benches.Job)

    asyncio.run(scenario())


def test_requests_arrive_whole_and_in_their_order(monkeypatch):
    """The last of many at once is the one that a bench takes in last."""

    async def scenario():
        async with running(monkeypatch) as (held, _):
            (first,) = await begun(held, "one-page")
            first.add("done", None)
            large = SUBJECT.model_copy(update={"edits": {"x": "1" * 30_000}})
            *before, last = await asyncio.gather(*(held.begin("one-page", "reprice", large) for _ in range(12)))
            await until(lambda: last.events == [("progress", 13)])
            assert all(job.events[-1] == ("cancelled", None) for job in before)

    asyncio.run(scenario())
