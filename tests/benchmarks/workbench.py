"""Time from the change of a link's bandwidth to the new ladder and timeline, as a page of the workbench sees it.

    python tests/benchmarks/workbench.py [CHANGES]

VGG-16 on 96 GPUs (fdr-32x3), a mini-batch of 768.  The times are wall times of this machine, whatever else it does;
beside them stands the processor time of all processes of the server, until the whole ladder is there and for all.
At last the numbers are compared
with those of ``lower_plan`` and ``replay``, as ``orrery simulate`` uses them, on the changed cluster.
Before all stands the first load in Chromium: bytes that come through the wire, and the browser's own processor time.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from statistics import median

import httpx
import psutil
from playwright.sync_api import sync_playwright

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.compare_strategies import compare
from planner.plan.lowered_plan import cost_model_of
from planner.plan.make_plan import request_for
from planner.simulation.program_replay import replay

SUBJECT = {"model": "vgg16", "cluster": "fdr-32x3", "batch": 768, "strategies": ["data", "owt", "spatial", "layerwise"]}
BENCH = "benchmark-of-the-workbench"
PAUSE_S = 1.0
"""Between changes, so that a bench that prepares itself is not part of the next."""


def events(client, kind, subject, shown=""):
    """Yield seconds since the request, kind and values of every event of a job."""
    begun = time.perf_counter()
    asked = {"bench": BENCH, "kind": kind, "subject": subject, "shown": shown}
    job = client.post("api/jobs", json=asked).raise_for_status().json()["job"]
    with client.stream("GET", f"api/jobs/{job}/events") as stream:
        word = ""
        for line in stream.iter_lines():
            if line.startswith("event: "):
                word = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield time.perf_counter() - begun, word, json.loads(line.removeprefix("data: "))
                if word in ("done", "failed", "cancelled"):
                    return


def processor_s(server):
    """Return the processor time of a process and all its living descendants."""
    total = 0.0
    for process in [server, *server.children(recursive=True)]:
        try:
            used = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total


def first_load(address, loads=5):
    """Print bytes and times of the page's first load, each in a browser that has stored nothing."""
    rows = []
    with sync_playwright() as playwright:
        for _ in range(loads):
            with playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"]) as browser:
                page, sizes = browser.new_page(), {}
                session = page.context.new_cdp_session(page)
                session.on(
                    "Network.loadingFinished",
                    lambda e, sizes=sizes: sizes.update({e["requestId"]: e["encodedDataLength"]}),
                )
                session.send("Network.enable")
                session.send("Performance.enable")
                begun = time.perf_counter()
                page.goto(address)
                page.wait_for_selector("body[data-ready]")
                wall_s = time.perf_counter() - begun
                found = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
                rows.append((sum(sizes.values()), wall_s, found["TaskDuration"]))
    size, wall_s, task_s = (median(column) for column in zip(*rows, strict=True))
    print(f"first load: {size / 1e3:.0f} kB, {wall_s:.2f} s, of which the page computes {task_s:.2f} s")


def main(changes=5):
    """Print a row for every change, and whether its numbers are those of a replay."""
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "orrery", "serve", folder, "--port", "0"]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
            address = re.search(r"http\S+", server.stdout.readline())[0]
            first_load(address)
            with httpx.Client(base_url=address, timeout=600) as client:
                measure(client, psutil.Process(server.pid), changes)
            server.terminate()


def measure(client, server, changes):
    """Compare, change a bandwidth several times, and check the last numbers."""
    shown, values = "layerwise", {}
    for at_s, kind, values in events(client, "compare", SUBJECT):
        if kind in ("table", "failed"):
            print(f"compare: {kind} after {at_s:.2f} s: {values if kind == 'failed' else values['strategies']}")
    print("GB/s  first ladder  whole ladder  timeline  all numbers  processor: ladder  all  [s]")
    rows = []
    for step in range(changes):
        bandwidth = f"{5.5 - 4 * step / changes:.3g}"
        subject = {**SUBJECT, "edits": {"link.fdr.bandwidth_gbyte_per_s": bandwidth}}
        times, used_s = {}, {"begun": processor_s(server)}
        for at_s, kind, values in events(client, "reprice", subject, shown):
            times.setdefault(f"first {kind}", at_s)
            times[kind] = at_s
            if kind in ("ladder", "table"):
                used_s[kind] = processor_s(server) - used_s["begun"]
            if kind == "table":
                table = values
        rows.append([times[each] for each in ("first ladder", "ladder", "timeline", "table")])
        rows[-1] += [used_s["ladder"], used_s["table"]]
        print(f"{bandwidth:>4}" + "".join(f"{each:12.2f}" for each in rows[-1]))
        time.sleep(PAUSE_S)
    for word, of in (("min", min), ("med", median)):
        print(f"{word:>4}" + "".join(f"{of(column):12.2f}" for column in zip(*rows, strict=True)))
    print("load", *(f"{each:.1f}" for each in os.getloadavg()))
    check(table["numbers"], bandwidth)


def check(numbers, bandwidth):
    """Compare the numbers of a change with those of the planner's own functions on the changed cluster."""
    graph = load_model("vgg16", batch=768)
    today, changed = load_cluster("fdr-32x3"), load_cluster(f"fdr-32x3:link.fdr.bandwidth_gbyte_per_s={bandwidth}")
    chosen = {each.name: each for each in compare(graph, today, SUBJECT["strategies"]).strategies}
    model = cost_model_of(request_for(graph, changed, strategy="data"), graph, changed)
    for row in numbers["strategies"]:
        result = chosen[row["name"]]
        simulated_s = replay(result.planned.lowered(model)).iteration_s
        expected_s = (simulated_s, result.planned.additive_s(model))
        equal = (row["simulated_s"], row["additive_s"]) == expected_s
        print(f"{row['name']}: {row['simulated_s']:.6f} s, {'equal to' if equal else 'NOT EQUAL TO'} the replay's")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
