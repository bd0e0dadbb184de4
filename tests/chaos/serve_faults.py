"""A workbench whose clients, processes and files are disturbed: it goes on, ends in time, and leaves nothing broken.

Run as ``python tests/chaos/serve_faults.py [SECONDS] [FIRST_SEED]``; a case is told by its seed.
"""

import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import httpx
import psutil

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from chaos import faults  # noqa: E402, as the path is set above

from hwprofiles.catalogue.cluster_catalogue import cluster_path  # noqa: E402

SUBJECT = {"model": "lenet5", "cluster": "titanx-4", "batch": 64, "strategies": ["data", "owt"]}
LONG = {"model": "inception-v3", "cluster": "fdr-32x3", "batch": 768, "strategies": ["data", "layerwise"]}
CHANGED = {**SUBJECT, "edits": {"link.slot.bandwidth_factor": "0.5"}}
CLUSTER = cluster_path("titanx-4").read_bytes()
PATIENCE_S, CLIENTS = 15.0, 5
SAID = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated", signal.SIGHUP: "hung up"}
DISTURBANCES = ("kill one", "kill one", "stop one", "half headers", "link", "outside file", "full disk")


def disturbed(seed: int, folder: Path) -> tuple[str, list[str]]:
    """Run a workbench among clients and faults; return what happened, and what is wrong with its end."""
    rng = random.Random(seed)
    words = [sys.executable, "-m", "orrery", "serve", str(folder), "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if name != "ORRERY_DEBUG"}
    environment["PYTHONPATH"] = str(ROOT)
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        address = re.search(r"http\S+", process.stdout.readline())[0]
        ends, stop, wrong = threading.Event(), threading.Event(), list[str]()
        clients = [
            threading.Thread(target=_client, args=(address, random.Random(seed * 100 + i), ends, stop, wrong))
            for i in range(CLIENTS)
        ]
        for each in clients:
            each.start()
        events, held = [], list[socket.socket]()
        for _ in range(rng.randrange(4)):
            time.sleep(rng.random() * 1.5)
            events.append(rng.choice(DISTURBANCES))
            with suppress(psutil.Error, OSError):
                held += _disturb(events[-1], rng, process.pid, address, folder)
        time.sleep(rng.random() * 1.5)
        number = rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
        to_all = number != signal.SIGKILL and rng.random() < 0.5
        tree = psutil.Process(process.pid).children(recursive=True)
        ends.set()
        (os.killpg if to_all else os.kill)(process.pid, number)
        wrong += _wrong_end(process, number, tree)
        stop.set()
        for client in clients:
            client.join(PATIENCE_S)
            wrong += ["a client still waits"] * client.is_alive()
        for each in held:
            each.close()
    about = f"seed {seed}: " + ", ".join([*events, number.name + " to all" * to_all])
    killed = number == signal.SIGKILL or "kill one" in events  # what a killed writer leaves goes with the next write
    return about, wrong + _wrong_files(folder, killed=killed)


def _disturb(what: str, rng: random.Random, server: int, address: str, folder: Path) -> list[socket.socket]:
    """Let a fault happen; return connections that stay open."""
    if what == "half headers":
        port = int(address.split(":")[2].partition("/")[0])
        opened = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(60)]
        for each in opened:
            each.sendall(b"POST / HTTP/1.1\r\nHost: ")
        return opened
    if what == "link":
        (folder / "clusters" / "link.yaml").symlink_to("/etc/passwd")
    elif what == "outside file":
        (folder / "scenarios" / "broken.json").write_text("{")
    elif what == "full disk":
        _fill_for_a_while(rng, server, folder)
    else:
        chosen = rng.choice(psutil.Process(server).children(recursive=True))
        if what == "stop one":
            chosen.suspend()
            time.sleep(0.3)
            chosen.resume()
        else:
            chosen.kill()
    return []


def _fill_for_a_while(rng: random.Random, server: int, folder: Path) -> None:
    """Fill the folder's own disk but for some bytes, or where it has none let no file grow beyond as many."""
    left_bytes = int(2 ** (rng.random() * 17))
    if os.path.ismount(folder):
        faults.fill(folder, left_bytes)
        time.sleep(1)
        (folder / "filler").unlink()
        return
    processes = [psutil.Process(server), *psutil.Process(server).children(recursive=True)]
    for most in (left_bytes, resource.RLIM_INFINITY):
        for each in processes:
            with suppress(psutil.Error):
                each.rlimit(psutil.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
        time.sleep(1)


def _client(address: str, rng: random.Random, ends: threading.Event, stop: threading.Event, wrong: list[str]) -> None:
    """Do what a page does, in any order, until the server has ended; before a signal ends it no request fails in it."""
    job = ""
    with httpx.Client(base_url=address, timeout=PATIENCE_S) as client:
        while not stop.is_set():
            try:
                answer = _asked(client, rng, job)
            except httpx.HTTPError:
                time.sleep(0.05)
                continue
            if answer.status_code >= 500 and not ends.is_set():
                wrong.append(f"{answer.request.method} is answered {answer.status_code}: {answer.text[:200]}")
            if answer.status_code == 200 and "job" in answer.json():
                job = answer.json()["job"]
                _listen(client, rng, job)


def _asked(client: httpx.Client, rng: random.Random, job: str) -> httpx.Response:
    """Ask for one thing."""
    bench, what = f"page-number-{rng.randrange(6)}", rng.randrange(9)
    if what < 3:
        kind, subject = rng.choice(
            [("compare", SUBJECT), ("compare", LONG), ("reprice", CHANGED), ("page", SUBJECT), ("timeline", SUBJECT)]
        )
        values = {"bench": bench, "kind": kind, "subject": subject, "shown": "data"}
        return client.post("api/jobs", json=values)
    if what < 5:
        return client.put("api/scenarios", json={"name": rng.choice("ab"), "job": job})
    if what == 5:
        return client.put(f"api/uploads/clusters/{rng.choice('ab')}", content=rng.choice([CLUSTER, CLUSTER[:300]]))
    if what == 6:
        return client.delete(rng.choice([f"api/jobs/{job}", "api/uploads/clusters/a", "api/scenarios/broken"]))
    if what == 7:
        return client.post("api/cluster", json={**SUBJECT, "cluster": rng.choice(["upload:a", "upload:link"])})
    return client.get("api/choices")


def _listen(client: httpx.Client, rng: random.Random, job: str) -> None:
    """Read the events of a job, or some of them."""
    most = rng.choice([1, 4, 1000])
    with suppress(httpx.HTTPError), client.stream("GET", f"api/jobs/{job}/events", timeout=1.5) as stream:
        for number, _ in enumerate(stream.iter_lines()):
            if number >= most:
                return


def _wrong_end(process: "subprocess.Popen[str]", number: signal.Signals, tree: list[psutil.Process]) -> list[str]:
    """Return what is wrong with the end of a server after a signal."""
    begun = time.monotonic()
    try:
        _, said = process.communicate(timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        return [f"{number.name} has not ended it within {PATIENCE_S:g} s"]
    code = -number if number == signal.SIGKILL else 128 + number
    line = f"orrery: {SAID[number]}\n" if number in SAID else ""
    _, alive = psutil.wait_procs(tree, timeout=max(5.0, begun + PATIENCE_S - time.monotonic()))
    left = [each for each in alive if each.status() != psutil.STATUS_ZOMBIE]
    for each in left:
        each.kill()
    wrong = [f"left process {each}" for each in left]
    wrong += [f"ended with {process.returncode} instead of {code}"] * (process.returncode != code)
    return wrong + [f"said {said[-1500:]}"] * (said != line)


def _wrong_files(folder: Path, *, killed: bool) -> list[str]:
    """Return what is wrong with the files in a working folder."""
    wrong = []
    for path in sorted(each for each in folder.rglob("*") if each.is_file() and not each.is_symlink()):
        hidden = any(part.startswith(".orrery-") for part in path.parts)
        if hidden and not killed:
            wrong.append(f"left {path}")
        elif not hidden and path.name != "broken.json" and not _is_whole(path):
            wrong.append(f"{path} is not whole")
    return wrong


def _is_whole(path: Path) -> bool:
    """Return whether a scenario has its numbers, an uploaded cluster its text, and a page its end."""
    content = path.read_bytes()
    if path.suffix == ".json":
        with suppress(ValueError):
            return bool(json.loads(content)["numbers"]["strategies"])
        return False
    return content == CLUSTER if path.suffix == ".yaml" else content.rstrip().endswith(b"</html>")


def main(arguments: list[str]) -> int:
    """Run cases for a time; the next server has the folder of the one before."""
    seconds, seed = (int(word) for word in (*arguments, *["120", "0"][len(arguments) :]))
    counts, end_s = Counter[str](), time.monotonic() + seconds
    if faults.ROOT:
        faults.private_mounts()
    with tempfile.TemporaryDirectory(prefix="chaos-") as base:
        folder = Path(base) / "work"
        folder.mkdir()
        if faults.ROOT:
            faults.small_disk(folder)
        while time.monotonic() < end_s:
            about, wrong = disturbed(seed, folder)
            counts["failed" if wrong else "good"] += 1
            counts[about.rpartition(", ")[2].rpartition(": ")[2]] += 1
            if wrong:
                print(f"{about}: {'; '.join(wrong)}", flush=True)
            (folder / "clusters" / "link.yaml").unlink(missing_ok=True)
            for left in folder.rglob(".orrery-*"):
                shutil.rmtree(left, ignore_errors=True)
            seed += 1
        if faults.ROOT:
            subprocess.run(["umount", folder], check=True)
    print(", ".join(f"{what} {count}" for what, count in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
