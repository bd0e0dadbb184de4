"""A network that is cut and mended while ranks train over it, in a lab of its own.

Run as ``python tests/chaos/lab_faults.py [CUT_S ...]``: for each time, two hosts train by ``orrery run`` and the link
of one is cut for so long, for ever if it is 0.  A short cut must not be noticed; a lasting one ends the run with the
reason on every host.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2])]

from executor.lab.inside import lab_hosts, run_inside  # noqa: E402, as the path is set above
from hwprofiles.catalogue.cluster_catalogue import load_cluster  # noqa: E402
from orrery.cli import app  # noqa: E402
from orrery.terminal.exit_codes import run_app  # noqa: E402

CLUSTER, STALL_S, STEPS = "lab-4:nodes=2", 6.0, 60
PATIENCE_S = 60.0


def cut_and_mended(cut_s: float) -> list[tuple[int, str]]:
    """Return exit codes and errors of two ranks whose network was cut for a time, for ever if it is 0."""
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        result = Path(folder, "result.json")
        code = run_inside([sys.executable, __file__, "--inside", str(cut_s), folder])
        assert code == 0, code
        return [tuple(row) for row in json.loads(result.read_text())]


def _inside(cut_s: float, folder: Path) -> None:
    """Make the hosts, train, cut and mend."""
    plan = folder / "plan.json"
    words = f"plan lenet5 --cluster {CLUSTER} --batch 16 --strategy data --out {plan}"
    assert run_app(app, words.split()) == 0
    with lab_hosts(load_cluster(CLUSTER)) as hosts:
        run = f"-m orrery run {plan} --steps {STEPS} --device cpu --threads 1 --stall-timeout {STALL_S:g}"
        run += f" --no-secret --checkpoint {folder / 'kept'} --checkpoint-every 1"
        ranks = [
            subprocess.Popen(
                hosts.command(
                    rank,
                    [sys.executable, *run.split()],
                ),
                env={**os.environ, **hosts.environment(rank), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            for rank in range(2)
        ]
        deadline_s = time.monotonic() + PATIENCE_S
        begun = folder / "kept" / "latest"
        while not begun.exists() and None in [rank.poll() for rank in ranks] and time.monotonic() < deadline_s:
            time.sleep(0.02)
        link = ["ip", "-n", hosts.namespaces[1], "link", "set", "eth0"]
        subprocess.run([*link, "down"], check=True)
        if cut_s:
            time.sleep(cut_s)
            subprocess.run([*link, "up"], check=True)
        said = [rank.communicate(timeout=PATIENCE_S)[1] for rank in ranks]
        rows = [(rank.returncode, text) for rank, text in zip(ranks, said, strict=True)]
    (folder / "result.json").write_text(json.dumps(rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        _inside(float(sys.argv[2]), Path(sys.argv[3]))
    else:
        for word in sys.argv[1:] or ["0.2", "1.5", "0"]:
            for code, said in cut_and_mended(float(word)):
                print(f"cut for {word} s: code {code} {said.strip()}")
