"""Benches that are asked for at the same time: one for a page, four in all, none without an owner."""

import asyncio
from contextlib import asynccontextmanager
from itertools import count
from multiprocessing import active_children, get_context

import pytest

from groundwork.errors import ConfigError
from orrery.workbench import benches, processes as started
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
    monkeypatch.setattr(started, "_CONTEXT", get_context("fork"))
    monkeypatch.setattr(benches, "bench", never_ready)
    others = set(active_children())
    held = benches.Benches("")
    try:
        yield held, lambda: len([each for each in active_children() if each not in others])
    finally:
        held.close()


async def begun(held, *owners):
    """Jobs of comparisons that are asked for at once, each another, or the reason of a refusal."""
    subjects = [SUBJECT.model_copy(update={"batch": 64 + i}) for i in range(len(owners))]
    asked = (held.begin(owner, "compare", each, each) for owner, each in zip(owners, subjects, strict=True))
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
            large = [SUBJECT.model_copy(update={"edits": {"x": "1" * (30_000 + i)}}) for i in range(12)]
            *before, last = await asyncio.gather(*(held.begin("one-page", "reprice", each, SUBJECT) for each in large))
            await until(lambda: last.events == [("progress", 13)])
            assert all(job.events[-1] == ("cancelled", None) for job in before)

    asyncio.run(scenario())


def test_what_is_known_is_not_computed_again(monkeypatch, tmp_path):
    """A result is every page's, a running job that of the page loaded again; a file written anew is another."""

    async def scenario():
        async with running(monkeypatch) as (held, processes):
            (tmp_path / "clusters").mkdir()
            file = tmp_path / "clusters" / "mine.yaml"
            file.write_text("one")
            held._folder = str(tmp_path)
            subject = SUBJECT.model_copy(update={"cluster": "upload:mine"})

            async def asked(owner, kind="compare", edits=()):
                changed = subject.model_copy(update={"edits": dict(edits)})
                return await held.begin(owner, kind, changed, subject)

            job = await asked("first-page")
            assert await asked("loaded-again") is job
            job.listeners = 1
            other = await asked("second-page")
            assert other is not job
            await until(lambda: processes() == 2)
            job.add("done", None)
            assert await asked("third-page") is job
            assert other.events[-1:] != [("cancelled", None)]
            change = await asked("third-page", "reprice", {"x": "1"})
            await until(lambda: ("progress", 2) in change.events)  # by the bench that made the comparison
            assert processes() == 2
            file.unlink()
            file.write_text("two")
            assert await asked("first-page") is not job

    asyncio.run(scenario())


def test_jobs_that_nobody_listens_to_are_cancelled(monkeypatch):
    """Also one whose page has left before it listened; a listener keeps a job."""
    monkeypatch.setattr(benches, "_ALONE_S", 0.05)

    async def scenario():
        async with running(monkeypatch) as (held, _):
            (alone,) = await begun(held, "one-page")
            heard = await held.begin("another-page", "compare", *[SUBJECT.model_copy(update={"batch": 8})] * 2)
            with held.listening(heard):
                await until(lambda: alone.ended)
                assert not heard.ended
            await until(lambda: heard.ended)

    asyncio.run(scenario())


def test_only_jobs_that_have_ended_are_forgotten(monkeypatch):
    monkeypatch.setattr(benches, "_MOST_JOBS", 3)

    async def scenario():
        async with running(monkeypatch) as (held, _):
            (busy,) = await begun(held, "one-page")
            for batch in range(8, 13):
                last = await held.begin("another-page", "compare", *[SUBJECT.model_copy(update={"batch": batch})] * 2)
            assert held.job(busy.id) is busy
            assert held.job(last.id) is last
            assert len(held._jobs) == 3

    asyncio.run(scenario())
