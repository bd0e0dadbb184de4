"""Time of the oracle's two answers: closed forms on 1 to 1,024 devices, and the simulation of every row.

Prints for ResNet-50 and VGG-16 on ABCI what each row takes by the form and by the simulation, and the time of both
sweeps, as a clock on the wall shows it and as the processors worked.  On a busy machine only the second says much: two
processors cannot take less than half of it.  Run: ``python tests/benchmarks/oracle_sweep.py [MODEL ...]``.

Measured beside much other work (load 14 to 22): with ``--simulate``, 16 to 1,024 devices and all strategies that
scale so far, 40 s of processor time for ResNet-50 (32 rows) and 20 s for VGG-16 (30 rows), while the clock showed 202
and 109 s.  The closed forms of eight strategies on eleven numbers of devices took 0.55 and 0.15 s of a processor.
"""

import os
import resource
import sys
from time import perf_counter

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from studies.oracle.oracle_request import OracleRequest, device_counts
from studies.oracle.projection import oracle

MODELS = ("resnet50", "vgg16")
BATCH = 32


def worked_s():
    """Processor time of this process and of its children that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def timed(name, what, **options):
    """The table of a request, with the time that it took printed."""
    cluster = load_cluster("abci-v100:nodes=256")
    began, before = perf_counter(), worked_s()
    table = oracle(
        load_model(name, batch=BATCH),
        cluster,
        OracleRequest(dataset="imagenet", batch_per_device=BATCH, **options),
    )
    seconds = perf_counter() - began
    print(
        f"{name}: {what}, {len(table.rows)} rows in {seconds:.2f} s, processors worked {worked_s() - before:.2f} s, "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()}",
        flush=True,
    )
    return table


def main(models):
    """Both sweeps of every model, and the rows of the second."""
    for name in models:
        timed(name, "closed forms", devices=device_counts("1..1024"))
        table = timed(name, "simulated", devices=device_counts("16..1024"), simulate=True)
        print(
            f"{'strategy':13} {'p':>5} {'form ms':>8} {'compute':>8} | {'sim. ms':>8} {'compute':>8} {'waits':>7} tasks"
        )
        for row in table.rows:
            second, ms = row.simulated, 1e3
            assert not second.refused, second.refused
            print(
                f"{row.strategy:13} {row.devices:5} {ms * row.iteration_s:8.1f} {ms * row.compute_s:8.1f} | "
                f"{ms * second.iteration_s:8.1f} {ms * second.compute_s:8.1f} {ms * second.waits_s:7.1f}"
            )


if __name__ == "__main__":
    main(sys.argv[1:] or MODELS)
