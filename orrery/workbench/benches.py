"""Benches as the server sees them: processes with one job at a time, and the events of each job."""

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import active_children
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from groundwork.errors import ConfigError
from orrery.workbench.bench_process import BenchRequest, bench
from orrery.workbench.processes import start_process
from orrery.workbench.subject import BenchSubject

_MOST_BENCHES = 4
"""Pages that compute at once; each holds some hundred MB."""
_MOST_JOBS = 200
"""Jobs whose events are kept, for pages that lose their connection."""
_ALONE_S = 20.0
"""Time after which a job that nobody listens to is cancelled."""
_LAST = ("done", "failed", "cancelled")
"""Events that end a job."""


@dataclass(eq=False, kw_only=True)
class Job:
    """One request of a page, and the events that answer it."""

    id: str
    kind: str
    subject: BenchSubject
    key: tuple[object, ...]
    """All that its result depends on."""
    events: list[tuple[str, Any]] = field(default_factory=list)
    table: dict[str, Any] | None = None
    """The last complete table, which a scenario keeps."""
    page: str = ""
    listeners: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ended(self) -> bool:
        """Return whether no more events come."""
        return bool(self.events) and self.events[-1][0] in _LAST

    @property
    def is_done(self) -> bool:
        """Return whether its result is there."""
        return bool(self.events) and self.events[-1][0] == "done"

    def add(self, kind: str, values: Any) -> None:
        """Add an event, unless the job has ended, and wake those who listen."""
        if self.ended:
            return
        if kind == "table" and values.get("complete"):
            self.table = values
        if kind == "page":
            self.page = values
        self.events.append((kind, values))
        self.changed.set()
        self.changed = asyncio.Event()

    async def events_after(self, after: int) -> AsyncIterator[tuple[int, str, Any]]:
        """Yield the events with a number above ``after``, and those that come, until the last."""
        at = after + 1
        while True:
            changed = self.changed
            while at < len(self.events):
                yield at, *self.events[at]
                at += 1
            if self.ended:
                return
            await changed.wait()


@dataclass(eq=False, kw_only=True)
class _Bench:
    """A process, and the job that it works on."""

    process: BaseProcess
    pipe: Connection
    owner: str = ""
    job: Job | None = None
    holds: tuple[object, ...] = ()
    """Key of the comparison that it made last, or makes."""
    compares: bool = False
    """Whether it makes that comparison: a search cannot be interrupted but with its process."""
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while a request is sent: requests arrive whole, and in their order."""

    @property
    def is_busy(self) -> bool:
        """Return whether it works."""
        return self.job is not None and not self.job.ended


class Benches:
    """The benches of all pages, and a spare one that has loaded everything."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._of: dict[str, _Bench] = {}
        self._jobs: dict[str, Job] = {}
        self._spare: asyncio.Task[_Bench] | None = None
        self._giving = asyncio.Lock()
        self._loop = asyncio.get_running_loop()

    def prepare(self) -> None:
        """Start the spare bench, if there is none."""
        if self._spare is None:
            self._spare = asyncio.create_task(asyncio.to_thread(self._started))
            self._spare.add_done_callback(_retrieve_exception)

    def job(self, job: str) -> Job:
        """Return a job.

        Raises:
            ConfigError: It is not known, or no longer.
        """
        if job not in self._jobs:
            raise ConfigError("this job is not known; the server may have been started anew since: press Compare")
        return self._jobs[job]

    async def begin(
        self, owner: str, kind: str, subject: BenchSubject, compared: BenchSubject, *, shown: str = ""
    ) -> Job:
        """Begin a job for a page, which ends the job before; or return the one that has its result already.

        A job that runs is another page's as well once nobody listens to it: so does a page that is loaded again.

        Raises:
            ConfigError: Too many benches work.
        """
        comparison = self._key(compared)
        key = (kind, shown if kind == "timeline" else "", *self._key(subject), *comparison)
        before = self._of.get(owner)
        usable = [job for job in self._jobs.values() if job.key == key and self._serves(job, before)]
        known = max(usable, key=lambda job: job.is_done, default=None)
        if known is not None:
            if before is not None and before.job is not None and before.job is not known:
                self.cancel(before.job)
            for held in list(self._of.values()):
                if held.job is known:
                    self._give(held, owner)
            self._jobs[known.id] = self._jobs.pop(known.id)  # the last used comes last
            return known
        held = await self._bench_for(owner, comparison)
        if held.job is not None:
            held.job.add("cancelled", None)
        job = Job(id=secrets.token_urlsafe(12), kind=kind, subject=subject, key=key)
        held.job = self._jobs[job.id] = job
        for old in [each for each in self._jobs.values() if each.ended][: max(0, len(self._jobs) - _MOST_JOBS)]:
            del self._jobs[old.id]
        request = BenchRequest(
            job=job.id, kind=kind, subject=subject, compared=compared, is_held=held.holds == comparison, shown=shown
        )
        held.compares |= kind == "compare" or not request.is_held
        held.holds = comparison
        self._of[owner] = self._of.pop(owner)  # the last used comes last
        with suppress(OSError):  # it has died, as whoever listens to it says
            async with held.sending:
                await asyncio.to_thread(held.pipe.send, request)
        self._loop.call_later(_ALONE_S, self._cancel_alone, job)
        return job

    def _key(self, subject: BenchSubject) -> tuple[object, ...]:
        """Return what stands for a subject and the content of its files."""
        stamps = []
        for file in subject.files:
            with suppress(OSError):
                found = Path(self._folder, file).stat()
                stamps.append((found.st_ino, found.st_mtime_ns, found.st_size))
        return (subject.model_dump_json(), *stamps)

    @staticmethod
    def _serves(job: Job, held: "_Bench | None") -> bool:
        """Return whether a job answers a page that has a bench, or none, and asks for the same."""
        running = not job.ended and (job.listeners == 0 or (held is not None and held.job is job))
        return job.kind != "page" and (job.is_done or running)

    def cancel(self, job: Job) -> None:
        """Cancel a job; one that still compares ends with its bench."""
        job.add("cancelled", None)
        for held in list(self._of.values()):
            if held.job is job and held.compares:
                self._end(held)

    @contextmanager
    def listening(self, job: Job) -> Iterator[None]:
        """Count a listener; a job that nobody listens to for some time is cancelled."""
        job.listeners += 1
        try:
            yield
        finally:
            job.listeners -= 1
            with suppress(RuntimeError):  # the server has ended
                self._loop.call_later(_ALONE_S, self._cancel_alone, job)

    def _cancel_alone(self, job: Job) -> None:
        """Cancel a job that nobody listens to."""
        if job.listeners == 0 and not job.ended:
            self.cancel(job)

    def close(self) -> None:
        """End all processes, also those that still start."""
        for held in list(self._of.values()):
            self._end(held)
        for process in active_children():
            process.kill()

    async def _bench_for(self, owner: str, comparison: tuple[object, ...]) -> _Bench:
        """Return a bench that now belongs to a page, best one that holds a comparison: its own, or an idle one.

        Benches are given one after the other, so that no page has two, and no more are given than there may be.
        """
        async with self._giving:
            own = self._of.get(owner)
            if own is not None and (not own.process.is_alive() or (own.compares and own.holds != comparison)):
                self._end(own)
                own = None
            if own is not None and own.holds == comparison:
                return own
            for held in list(self._of.values()):
                if held.holds == comparison and not held.is_busy and held.process.is_alive():
                    return self._give(held, owner)
            return own or await self._taken(owner)

    def _give(self, held: _Bench, owner: str) -> _Bench:
        """Give a bench to a page; the page that had it gets the other's, if any."""
        other, before = self._of.pop(owner, None), held.owner
        if other is not held:
            del self._of[before]
            if other is not None:
                other.owner = before
                self._of[before] = other
        held.owner = owner
        self._of[owner] = held
        return held

    async def _taken(self, owner: str) -> _Bench:
        """Return the spare bench, which now belongs to a page, and start the next."""
        if len(self._of) >= _MOST_BENCHES:
            idle = [held for held in self._of.values() if not held.is_busy]
            if not idle:
                raise ConfigError(f"{_MOST_BENCHES} pages compare already; cancel one, or wait")
            self._end(idle[0])
        self.prepare()
        assert self._spare is not None
        spare, self._spare = self._spare, None
        held = await spare
        if not held.process.is_alive():
            held = await asyncio.to_thread(self._started)
        held.owner = owner
        self._of[owner] = held
        threading.Thread(target=self._listen, args=(held,), daemon=True).start()
        self._loop.call_later(2.0, self.prepare)
        return held

    def _started(self) -> _Bench:
        """Return a new bench, which loads what it needs while nobody waits for it."""
        process, pipe = start_process(bench, self._folder, daemon=False)
        return _Bench(process=process, pipe=pipe)

    def _listen(self, held: _Bench) -> None:
        """Pass on what a bench says, in a thread of its own."""
        try:
            while True:
                said = held.pipe.recv()
                self._loop.call_soon_threadsafe(self._add_event, held, said)
        except (EOFError, OSError, RuntimeError):  # it ended, or the server's loop has
            held.process.join(1)
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._died, held)

    def _add_event(self, held: _Bench, said: tuple[str, str, Any]) -> None:
        """Add an event to its job; one of a job that was cancelled is dropped there."""
        job, kind, values = said
        if kind == "failed" and held.compares:
            held.holds = ()
        if kind in ("compared", "failed"):
            held.compares = False
        if job in self._jobs and kind != "compared":
            self._jobs[job].add(kind, values)

    def _died(self, held: _Bench) -> None:
        """Say that a bench has ended of itself, where it had work."""
        held.pipe.close()
        code = held.process.exitcode
        why = f"killed by signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        if held.job is not None:
            held.job.add(
                "failed",
                f"the process of this computation ended ({why}), perhaps for want of memory; "
                "the workbench goes on: press Compare to start again",
            )
        self._end(held)

    def _end(self, held: _Bench) -> None:
        """End a bench and its job."""
        if self._of.get(held.owner) is held:
            del self._of[held.owner]
        if held.job is not None:
            held.job.add("cancelled", None)
        held.process.kill()


def _retrieve_exception(started: asyncio.Task[_Bench]) -> None:
    """Take note of why no bench could be started; whoever asks for one is told."""
    if not started.cancelled():
        started.exception()
