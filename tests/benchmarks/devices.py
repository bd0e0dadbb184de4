"""What a plan takes against the number of devices: processor time, memory, and tasks that are lowered.

Run as ``python tests/benchmarks/devices.py``; prints a row for each plan, each made by a process of its own.
"""

import multiprocessing
import resource
import sys
from time import process_time

from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.models.registry import load_model
from planner.plan.make_plan import simulated_plan

LLAMA_70B = "llama-1b:layers=80,hidden=8192,heads=64,ffn=28672,tied=0"
"""Sizes of Llama 3 70B."""
PLANS = (
    *(("resnet50", nodes, 32, "data", "float32") for nodes in (8, 32, 128, 512, 1024)),
    *(("vgg16", nodes, 32, "data", "float32") for nodes in (8, 1024)),
    ("gpt2", 16, 1, "tensor=8,data=16,zero=1", "bfloat16"),
    ("gpt2", 128, 1, "tensor=8,data=128,zero=1", "bfloat16"),
    (LLAMA_70B, 64, 1 / 8, "tensor=8,pipeline=8,data=8,zero=1,micro-batches=8", "bfloat16"),
)
"""Model, machines of eight H100, samples a device, strategy, data type."""
_KIB_IN_MIB = 1024 if sys.platform != "darwin" else 1024**2


def measured(model, nodes, samples, strategy, dtype):
    """Seconds of processor time, MiB of the process, tasks lowered and tasks that they stand for."""
    begin = process_time()
    cluster = load_cluster(f"dgx-h100:nodes={nodes}")
    graph = load_model(model, batch=round(samples * 8 * nodes), element_bytes=4 if dtype == "float32" else 2)
    replayed = simulated_plan(graph, cluster, strategy=strategy, dtype=dtype).replayed
    taken_s = process_time() - begin
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _KIB_IN_MIB
    return taken_s, used, replayed.program.size, replayed.tasks


if __name__ == "__main__":
    print(f"{'model':12}{'strategy':52}{'devices':>8}{'seconds':>9}{'MiB':>8}{'tasks':>10}{'stand for':>12}")
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for plan in PLANS:
            model, nodes, _, strategy, _ = plan
            seconds, mib, tasks, all_tasks = pool.apply(measured, plan)
            name = model.partition(":")[0]
            print(
                f"{name:12}{strategy:52}{8 * nodes:8,}{seconds:9.2f}{mib:8,.0f}{tasks:10,}{all_tasks:12,}", flush=True
            )
