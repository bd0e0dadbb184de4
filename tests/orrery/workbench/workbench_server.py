"""A workbench in a process of its own, and what asks it as a page does."""

import json
import re
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

SMALL = {"model": "lenet5", "cluster": "titanx-4", "batch": 64, "strategies": ["data", "owt"]}
LAST = ("done", "failed", "cancelled")


@dataclass
class Served:
    """A running server."""

    process: subprocess.Popen
    address: str
    folder: Path
    client: httpx.Client
    cwd: Path
    errors: list = field(default_factory=list)

    @property
    def base(self):
        """Address without the token."""
        return re.match(r"http://[^/]+", self.address)[0]

    @property
    def token(self):
        return self.address.rstrip("/").rpartition("/")[2]


@contextmanager
def served(folder, cwd, *, python=sys.executable):
    """A workbench on any free port, ended by Ctrl-C; one that starts warm, which Ctrl-C does not reach, by SIGTERM."""
    cwd.mkdir(exist_ok=True)
    words = [python, "-m", "orrery", "serve", str(folder), "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd) as process:
        try:
            address = re.search(r"http\S+", process.stdout.readline())[0]
            with httpx.Client(base_url=address, timeout=60) as client:
                yield Served(process=process, address=address, folder=Path(folder), client=client, cwd=cwd)
        finally:
            process.send_signal(signal.SIGINT if python == sys.executable else signal.SIGTERM)
            try:
                process.communicate(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def asked(client, kind, subject=SMALL, *, bench="bench-of-tests", shown="", compared=None):
    """Begin a job; the answer with its id."""
    values = {"bench": bench, "kind": kind, "subject": subject, "shown": shown, "compared": compared or {}}
    return client.post("api/jobs", json=values)


def said(client, job, *, after=None):
    """Yield number, kind and values of the events of a job, as a browser reads them, until it ends."""
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    with client.stream("GET", f"api/jobs/{job}/events", headers=headers) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        event = {}
        for line in stream.iter_lines():
            name, _, value = line.partition(": ")
            if line:
                event[name] = value
            elif "event" in event:
                yield int(event["id"]), event["event"], json.loads(event["data"])
                if event["event"] in LAST:
                    return
                event = {}


def compared(client, subject=SMALL, *, kind="compare", **more):
    """The id of a job, and its events by kind in order."""
    answer = asked(client, kind, subject, **more)
    assert answer.status_code == 200, answer.text
    job = answer.json()["job"]
    events = {}
    for _, word, values in said(client, job):
        events.setdefault(word, []).append(values)
    return job, events
