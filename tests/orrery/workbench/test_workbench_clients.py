"""Clients that are slow, many, at once or gone: they neither block others, nor spoil files, nor print anything."""

import asyncio
import json
import signal
import socket
import struct
import sys
import threading
import time
from contextlib import asynccontextmanager, closing, suppress

import httpx
import psutil
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from uvicorn import Config
from workbench_server import SMALL, asked, compared, said, served

from groundwork.errors import ConfigError
from orrery.workbench.transport import guard, loopback

LONG = {"model": "inception-v3", "cluster": "fdr-32x3", "batch": 768, "strategies": ["data", "layerwise"]}
SLOWER = {**LONG, "cluster": "fdr-32x3:nodes=2", "batch": 96, "strategies": ["data", "owt"]}


@pytest.fixture(scope="module")
def server_python():
    """The real interpreter, whose limits and processes are its own."""
    return sys.executable


def connected(server, text):
    """A connection that has sent some text."""
    connection = socket.create_connection(("127.0.0.1", int(server.base.rpartition(":")[2])), timeout=20)
    connection.sendall(text.format(token=server.token, host=server.base.removeprefix("http://")).encode())
    return connection


def leave(connection):
    """Leave in the middle, so that the other side is told of a broken connection."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


@pytest.mark.skipif(sys.platform != "linux", reason="sets a limit of another process")
def test_half_sent_headers_leave_descriptors_for_the_page(server):
    """300 connections of a process without the token, of a server that may have 340 descriptors."""
    process = psutil.Process(server.process.pid)
    before = process.rlimit(psutil.RLIMIT_NOFILE)
    process.rlimit(psutil.RLIMIT_NOFILE, (340, before[1]))
    held = list[socket.socket]()
    try:
        held.extend(connected(server, "GET / HTTP/1.1\r\nHost: ") for _ in range(300))
        begun = time.monotonic()
        assert httpx.get(server.address, timeout=20).status_code == 200
        assert time.monotonic() - begun < 5
        with suppress(ConnectionResetError):  # the oldest is dropped
            assert held[0].recv(1) == b""
    finally:
        for each in held:
            each.close()
        process.rlimit(psutil.RLIMIT_NOFILE, before)


def test_one_name_kept_by_many_at_once(server):
    """No error, and every reader sees a whole file."""
    job, events = compared(server.client)
    server.client.put("api/scenarios", json={"name": "one", "job": job}).raise_for_status()
    (file,) = (server.folder / "scenarios").glob("one-*.json")
    expected, wrong = json.loads(json.dumps(events["table"][-1]["numbers"])), []

    def keep():
        with httpx.Client(base_url=server.address, timeout=60) as client:
            for _ in range(5):
                answer = client.put("api/scenarios", json={"name": "one", "job": job})
                rows = answer.json().get("scenarios", [answer.text])
                wrong.extend(row for row in rows if row == answer.text or "error" in row)

    writers = [threading.Thread(target=keep) for _ in range(12)]
    for each in writers:
        each.start()
    while any(each.is_alive() for each in writers):
        assert json.loads(file.read_bytes())["numbers"] == expected
    assert wrong == []
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    server.client.delete(f"api/scenarios/{file.stem}")


def test_exported_pages_are_named_after_what_they_are_of(server):
    """A page of a changed cluster, of an upload of the same name or of other strategies replaces none."""
    from hwprofiles.catalogue.cluster_catalogue import cluster_path

    upload = cluster_path("titanx-4").read_text().replace("memory_gib: 12", "memory_gib: 11")
    server.client.put("api/uploads/clusters/titanx-4", content=upload.encode()).raise_for_status()
    subjects = [
        SMALL,
        {**SMALL, "edits": {"link.slot.bandwidth_factor": "0.25"}},
        {**SMALL, "strategies": ["data"]},
        {**SMALL, "cluster": "upload:titanx-4"},
    ]
    names = []
    for subject in subjects:
        compared(server.client, subject)
        for _ in range(2):
            job, events = compared(server.client, subject, kind="page")
            names += events["page"]
            assert f'filename="{names[-1]}"' in server.client.get(f"api/jobs/{job}/page").headers["content-disposition"]
    assert names[::2] == names[1::2]
    assert len(set(names)) == len(subjects)
    assert names[2].startswith("lenet5-titanx-4-64-link-slot-bandwidth-factor-0-25-")
    assert {path.name for path in (server.folder / "pages").iterdir()} == set(names)
    server.client.delete("api/uploads/clusters/titanx-4").raise_for_status()


def test_jobs_follow_no_link_out_of_the_folder(server, tmp_path):
    from hwprofiles.catalogue.cluster_catalogue import cluster_path

    (tmp_path / "outside.yaml").write_text(cluster_path("titanx-4").read_text())
    for kind, field, name in (
        ("clusters", "cluster", "leading"),
        ("models", "model", "leading"),
        ("clusters", "cluster", "plain:nodes=1"),
    ):
        link = server.folder / kind / (f"{name}.yaml" if ":" not in name else "plain.yaml:nodes=1")
        link.symlink_to(tmp_path / "outside.yaml")
        (server.folder / kind / "plain.yaml").write_text("version: 1\n")
        subject = {**SMALL, field: f"upload:{name}"}
        _, events = compared(server.client, subject)
        assert "no link" in events["failed"][0] or "hold no file" in events["failed"][0]
        if field == "cluster":
            answer = server.client.post("api/cluster", json=subject)
            assert answer.status_code == 400
            assert "outside" not in answer.text
        link.unlink()
        (server.folder / kind / "plain.yaml").unlink()


def waits_for_end(process, tree):
    """Exit code, standard error and what is left of the processes; at most some seconds after a signal."""
    _, error = process.communicate(timeout=15)
    _, alive = psutil.wait_procs(tree, timeout=5)
    return process.returncode, error, [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("state", ["starting", "left", "working"])
def test_signals_end_the_server_and_all_that_it_started(tmp_path, monkeypatch, state):
    """In every state, with the code of the signal, and with one line: also after clients have left, or wait."""
    monkeypatch.delenv("ORRERY_DEBUG", raising=False)
    number = {"starting": signal.SIGTERM, "left": signal.SIGINT, "working": signal.SIGHUP}[state]
    line = {"starting": "terminated", "left": "interrupted", "working": "hung up"}[state]
    with served(tmp_path / "folder", tmp_path) as server, suppress(ProcessLookupError):
        if state == "left":
            job = asked(server.client, "compare", LONG).json()["job"]
            clients_that_leave(server, job)
        if state == "working":
            compared(server.client, SLOWER, bench="the-repricing")
            job = asked(server.client, "compare", LONG).json()["job"]
            listener = threading.Thread(target=listen, args=(server, job))
            listener.start()
            uploading = connected(
                server, "PUT /{token}/api/uploads/models/x HTTP/1.1\r\nHost: {host}\r\nContent-Length: 99\r\n\r\nabc"
            )
            changed = {**SLOWER, "edits": {"link.fdr.bandwidth_factor": "0.5"}}
            asked(server.client, "reprice", changed, bench="the-repricing")
        tree = psutil.Process(server.process.pid).children(recursive=True)
        server.process.send_signal(number)
        assert waits_for_end(server.process, tree) == (128 + number, f"orrery: {line}\n", [])
        if state == "working":
            listener.join(20)
            assert not listener.is_alive()
            uploading.close()


def listen(server, job):
    """Read the events of a job until the server ends."""
    with suppress(httpx.HTTPError), httpx.Client(base_url=server.address, timeout=60) as client:
        list(said(client, job))


def clients_that_leave(server, job):
    """Clients that go in the middle of a body, an answer and a stream, and some that stay there."""
    upload = "PUT /{token}/api/uploads/models/x HTTP/1.1\r\nHost: {host}\r\nContent-Length: 999\r\n\r\nabc"
    begin = "POST /{token}/api/jobs HTTP/1.1\r\nHost: {host}\r\nContent-Length: 999\r\n\r\nabc"
    events = "GET /{token}/api/jobs/" + job + "/events HTTP/1.1\r\nHost: {host}\r\n\r\n"
    script = "GET /{token}/plotly.js HTTP/1.1\r\nHost: {host}\r\n\r\n"
    for text in (upload, begin, events, script, "GET / HT"):
        gone = connected(server, text)
        if text in (events, script):
            gone.recv(10)
        time.sleep(0.1)
        leave(gone)
    for text in (upload, events, script):
        connected(server, text).detach()  # these stay until the server has ended
    time.sleep(0.3)


# ---- the connections alone, with shorter deadlines --------------------------------------------------------------


@asynccontextmanager
async def listening(monkeypatch):
    """A server of this process whose clients have a fifth of a second; yields its port and its connections."""
    for module, name in ((loopback, "_HEADERS_S"), (loopback, "_TAKING_S"), (guard, "_BODY_S")):
        monkeypatch.setattr(module, name, 0.2)

    async def take(request: Request) -> Response:
        try:
            return JSONResponse(len(await guard.limited_body(request, 10, "body")))
        except ConfigError as error:
            return JSONResponse(str(error), 400)

    async def give(request: Request) -> Response:
        return Response(bytes(30 * 2**20))

    app = Starlette(routes=[Route("/", take, methods=["POST"]), Route("/large", give)])
    with closing(loopback.listening_socket(0)) as listens:
        port = listens.getsockname()[1]
        config = Config(app, http=loopback.BoundedConnection, log_level="critical")
        server = loopback._Server(config, lambda: None)
        serving = asyncio.create_task(server.serve([listens]))
        while not server.started:
            await asyncio.sleep(0.01)
        yield port, server.server_state.connections
        server.should_exit = True
        await serving


POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n"


@pytest.mark.parametrize("whole", [b"", POST + b"1234"], ids=["at first", "after a request"])
def test_headers_that_come_by_drops_end_a_connection(monkeypatch, whole):
    async def drip():
        async with listening(monkeypatch) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(whole)
            if whole:
                assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
                assert await reader.readexactly(1) == b"4"
            begun = time.monotonic()
            with suppress(ConnectionError):
                while not reader.at_eof():
                    writer.write(b"G")
                    with suppress(TimeoutError):
                        await asyncio.wait_for(reader.read(1), 0.05)
            assert 0.15 < time.monotonic() - begun < 3
            writer.close()

    asyncio.run(drip())


def test_a_body_that_does_not_come_is_refused(monkeypatch):
    async def wait():
        async with listening(monkeypatch) as (port, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(POST + b"123")
            answer = await asyncio.wait_for(reader.read(), 3)  # to the end, for it is dropped then
            assert b"400 Bad Request" in answer
            assert b"body must arrive within 0.2 s" in answer
            writer.close()

    asyncio.run(wait())


def test_a_client_that_takes_nothing_is_dropped(monkeypatch):
    """One that reads has the whole answer meanwhile."""

    async def take():
        async with listening(monkeypatch) as (port, connections):
            for reads in (False, True):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                taken = b""
                for held in (True, False) if not reads else ():  # it takes what its buffer holds, until it is dropped
                    while bool(connections) != held:
                        await asyncio.sleep(0.01)
                with suppress(ConnectionError):
                    taken = await reader.read()
                assert (len(taken) > 30 * 2**20) == reads
                writer.close()

    asyncio.run(take())
