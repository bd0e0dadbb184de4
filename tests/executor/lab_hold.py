"""A command that runs in a lab: makes hosts with a sleeper in each, says what it sees, and stays or leaves.

Run as ``lab_hold.py CLUSTER REPORT stay|leave``.
"""

import subprocess
import sys
import time
from pathlib import Path

from executor.lab.inside import lab_hosts
from hwprofiles.catalogue.cluster_catalogue import load_cluster

SLEEPER = "import time; time.sleep(600)"


def words(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def main(spec, report, stay):
    with lab_hosts(load_cluster(spec)) as hosts:
        for rank in range(hosts.count):
            subprocess.Popen(hosts.command(rank, [sys.executable, "-c", SLEEPER, f"asleep-{report}"]))
        time.sleep(0.3)
        addresses = [
            words(hosts.command(rank, ["ip", "-4", "-brief", "address", "show", "eth0"]))[2]
            for rank in range(hosts.count)
        ]
        text = f"{hosts.count} hosts, {' '.join(addresses)}"
        if stay == "stay":
            Path(report).write_text(text)
            time.sleep(600)
    Path(report).write_text(f"{text}, then {len(words(['ip', 'netns', 'list']))}")
    return 7


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
