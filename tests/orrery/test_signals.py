"""Signals end a command with one line and their exit code, whatever it is at, and leave nothing half written."""

import os
import signal
import subprocess
import sys
import time

import pytest

ENDS = [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated"), (signal.SIGHUP, 129, "hung up")]
SLOW = """
import sys, time
import planner.plan.plan_file
from orrery.entry import main

def save_plan(plan, path):
    path.write_text("half")
    print("at work", flush=True)
    while True:
        time.sleep(0.1)

planner.plan.plan_file.save_plan = save_plan
main()
"""
"""The command line, which writes half a plan and does not end.

It sleeps for moments: a signal that comes just before a sleep is heard after it.
"""


def ended(process, number):
    """Send a signal; returns the exit code and what was said."""
    process.send_signal(number)
    _, error = process.communicate(timeout=20)
    return process.returncode, error


@pytest.mark.parametrize(("number", "code", "words"), ENDS)
def test_work_is_cleaned_up(tmp_path, number, code, words):
    """Neither the output nor what it was written to stays."""
    words_of_plan = ["plan", "lenet5", "--cluster", "titanx-4", "--batch", "8", "--strategy", "data"]
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW, *words_of_plan, "--out", str(tmp_path / "new" / "plan.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "at work\n"

    assert ended(process, number) == (code, f"orrery: {words}\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("number", "code", "words"), ENDS)
def test_imports_end_in_one_line(number, code, words):
    """While modules are loaded nothing is under way yet, and no traceback is of use."""
    slow = "import sys, time; sys.meta_path.insert(0, type('Slow', (), {'find_spec': lambda *_: time.sleep(0.02)})())"
    process = subprocess.Popen(
        [sys.executable, "-c", f"{slow}; from orrery.entry import main; print('begun', flush=True); main()", "models"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "begun\n"
    time.sleep(0.5)

    assert ended(process, number) == (code, f"orrery: {words}\n")


def test_what_nohup_ignores_stays_ignored():
    """A command that its terminal leaves behind goes on."""
    script = "import os, signal; from orrery.entry import main; os.kill(os.getpid(), signal.SIGHUP); main()"
    process = subprocess.run(
        ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-c", script, "clusters"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")


LOST = {
    "text": "exec('import os; os.kill(os.getpid(), 15)')",
    "callback": "[ctypes.CFUNCTYPE(None)(lambda: os.kill(os.getpid(), 15))(), *map(time.sleep, [0.1] * 600)]",
}


@pytest.mark.parametrize("work", LOST)
def test_a_signal_where_interrupts_are_lost_ends_as_any_other(tmp_path, work):
    """Text is executed as when a data class is made: CPython would keep the interrupt in mind and die of SIGINT.

    It passes over one in a callback, as compilers of kernels make them.
    """
    script = (
        "import ctypes, os, time, planner.models.registry, orrery.cli; from orrery.entry import main; "
        f"planner.models.registry.model_names = lambda: {LOST[work]}; main()"
    )
    tmp_path.joinpath("program.py").write_text(script)
    path = os.pathsep.join([str(tmp_path), *sys.path])
    process = subprocess.run(
        [sys.executable, "-m", "program", "models"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (process.returncode, process.stderr) == (143, "orrery: terminated\n")


SEARCH = """
import os, time
from planner.cost import transfer_time
from orrery.entry import main

def price_pairs(pairs, overlaps, routes, seconds):
    os.write(1, b"at work\\n")  # whole, where several threads begin at once
    time.sleep(5e-3 * len(pairs.producer))

transfer_time.price_pairs, transfer_time._VISITS_PER_JOB = price_pairs, 1000
main()
"""
"""The command line, whose compiled prices take 5 ms a pair, as on the largest clusters, and may take 0.2 s a call."""


def test_threads_of_a_search_end_with_it(tmp_path):
    """What threads have begun takes 0.2 s; what they were given, a minute."""
    words = ["plan", "vgg16", "--cluster", "p100-4x4", "--batch", "512", "--out", str(tmp_path / "plan.json")]
    process = subprocess.Popen(
        [sys.executable, "-c", SEARCH, *words, "--strategy", "layerwise"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "at work\n"

    began = time.monotonic()
    assert ended(process, signal.SIGTERM) == (143, "orrery: terminated\n")
    assert time.monotonic() - began < 5  # of a busy machine; alone it takes 0.4 s
