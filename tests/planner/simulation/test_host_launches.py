"""Launches of hosts, against the recurrence of a device that begins no kernel before its launch."""

import numpy as np
import pytest
from plans import cluster_of

from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.software import software_of
from planner.derivatives.eager_kernels import kernel_count, launched_kernels
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from planner.plan.make_plan import simulated_plan
from planner.plan.pace import pace_of
from planner.simulation.program_replay import replay
from planner.simulation.steady_path import program_path

PHASES = ("forward", "activation_gradient", "weight_gradient")


def _replayed(model, devices, software, batch=8, **options):
    return simulated_plan(
        load_model(model, batch=batch), cluster_of("dgx-h100", devices), strategy="data", software=software, **options
    ).replayed


@pytest.mark.parametrize("launch_us", [1.0, 30.0, 400.0])
@pytest.mark.parametrize("model", ["lenet5", "gpt2:layers=2,hidden=128,heads=2,sequence=64,words=512"])
def test_a_device_waits_for_each_launch(model, launch_us):
    found = _replayed(model, 1, f"pytorch:launch_us={launch_us}", interference=False, spread=False)
    program, launched_s, device_s = found.program, 0.0, 0.0
    assert set(program.device) == {0}
    for task in range(program.size):
        kind, layer = KINDS[program.kind[task]], int(program.layer[task])
        count = launched_kernels(program.graph, layer, kind, fused=False) if kind in PHASES else 0
        launched_s += count * launch_us * 1e-6
        device_s = max(device_s, launched_s if count else 0.0) + program.work_s[task]
    assert found.iteration_s == pytest.approx(device_s, rel=1e-9)


@pytest.mark.parametrize("options", [{"micro_batches": 2}, {"recompute": "segments"}])
def test_engines_agree_and_more_launches_take_no_less(options):
    times = []
    for text in ("pytorch:launch_us=0", "pytorch:launch_us=5", "pytorch:launch_us=200"):
        found = _replayed("gpt2:layers=2,hidden=128,heads=2,sequence=64,words=512", 4, text, **options)
        if text.endswith("=5"):
            assert replay(found.program, engine="simpy").iteration_s == pytest.approx(found.iteration_s, rel=1e-9)
        times.append(found.iteration_s)
    assert times == sorted(times)
    assert times[2] > 2 * times[0]


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 4), (4, 8)])
def test_stages_that_wait_for_their_launches_take_the_closed_form(stages, micro_batches):
    """Narayanan et al., 2021, Sec. 2.2.1: (m + p - 1) passes of one micro-batch, here of launches alone."""
    launch_us, layers = 1000.0, 4
    graph = load_model(f"gpt2:layers={layers},hidden=64,heads=1,sequence=32,words=64", batch=micro_batches)
    at = tuple(f"transformer.h.{layers // stages * s}.ln_1" for s in range(1, stages))
    found = simulated_plan(
        graph,
        cluster_of("dgx-h100", stages),
        strategy=f"pipeline={stages}",
        micro_batches=micro_batches,
        stage_at=at,
        software=f"torch-compile:launch_us={launch_us},waits=2,sums=2",  # sums=1 has fewer launches at first
        interference=False,
        spread=False,
    ).replayed
    blocks = [layer for layer in graph.layers if layer.name.startswith("transformer.h.")]
    each_s = launch_us * 1e-6 * sum(kernel_count(layer, phase, fused=True) for layer in blocks for phase in PHASES)
    each_s += launch_us * 1e-6 * sum(len(layer.parameters) for layer in blocks)
    ends = [layer for layer in graph.layers if not layer.name.startswith("transformer.h.")]
    ends_s = launch_us * 1e-6 * sum(kernel_count(layer, phase, fused=True) for layer in ends for phase in PHASES)
    ends_s += launch_us * 1e-6 * sum(len(layer.parameters) for layer in ends)
    expected_s = (micro_batches + stages - 1) * each_s / stages
    assert expected_s < found.iteration_s < expected_s + (micro_batches + 1) * ends_s


@pytest.mark.parametrize(("machines", "waits", "launch_us"), [(1, 0, 55), (2, 0, 55), (2, 1, 55), (2, 0, 0)])
def test_hosts_take_time_for_each_device_of_a_collective_between_stages_on_different_machines(
    machines, waits, launch_us
):
    """Each of two devices spends the time for both of a collective; only machines apart count."""
    peer_us, graph = 100.0, load_model("gpt2:layers=2,hidden=64,heads=2,sequence=32,words=64", batch=4)
    launched_s = []
    for each_us in (0.0, peer_us):
        found = simulated_plan(
            graph,
            load_cluster("dgx-h100:nodes=2") if machines > 1 else cluster_of("dgx-h100", 4),
            strategy=f"pipeline=2,data={4 * machines // 2 if machines > 1 else 1},tensor=2",
            micro_batches=1,
            software=f"nanotron:launch_us={launch_us},peer_us={each_us},waits={waits}",
            interference=False,
            spread=False,
        ).replayed
        tasks = found.program_graph
        hosts = tasks.graph.work[tasks.launches >= 0] if launch_us or each_us else np.zeros(1)
        launched_s.append(hosts.sum() / len(tasks.task_of))
    program = found.program
    devices = [len(c.devices) for task, c in program.collectives.items() if program.consumer[task] >= 0]
    assert devices
    more_s = (machines > 1) * sum(size**2 for size in devices) * peer_us * 1e-6
    assert launched_s[1] - launched_s[0] == pytest.approx(more_s, rel=1e-6, abs=1e-12)


def test_hosts_that_wait_launch_nothing_before_their_messages_have_arrived():
    graph = load_model("gpt2:layers=2,hidden=256,heads=1,sequence=128,words=64", batch=4)
    for waits, held in ((0, False), (1, True), (2, True)):
        found = simulated_plan(
            graph,
            cluster_of("fdr-32x3", 4).take(4),
            strategy="pipeline=2",
            micro_batches=4,
            software=f"torch-compile:launch_us=1,waits={waits}",
        ).replayed
        program, tasks, schedule = found.program, found.program_graph, found.schedule
        sent = np.flatnonzero((program.peer >= 0) & (program.slot == 0) & ~program.backward)
        assert len(sent) == 4
        launched = np.flatnonzero(tasks.launches >= 0)
        after = []
        for message in sent:
            end_s = schedule.end_s[tasks.task_of[0, message]]
            mine = launched[program.device[tasks.launches[launched]] == program.device[message]]
            micro_batch = program.micro_batch[tasks.launches[mine]]
            later = mine[(micro_batch > program.micro_batch[message]) & (tasks.launches[mine] > message)]
            after += [schedule.start_s[later].min() >= end_s - 1e-12] if len(later) else []
        assert all(after) == held


def test_the_critical_path_passes_launches_and_takes_the_whole_iteration():
    found = _replayed("lenet5", 2, "pytorch:launch_us=200")
    path = program_path(found)
    assert sum(path.seconds_by("kind").values()) == pytest.approx(found.iteration_s, rel=1e-9)
    assert path.seconds_by("kind")["launch"] > 0.9 * found.iteration_s
    assert pace_of(found, path).sentence.startswith("launches of the hosts set the pace")


def test_without_launches_the_graph_is_the_same():
    plain, graphed = (
        _replayed("lenet5", 2, text) for text in ("ideal", "cuda-graph:fused=1,channels_first=0,update=0")
    )
    np.testing.assert_array_equal(plain.schedule.end_s, graphed.schedule.end_s)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (
            "pytorh",
            "software must be one of ideal, pytorch, torch-compile, megatron-2021, megatron-core, nanotron, "
            "cuda-graph, got 'pytorh'",
        ),
        (
            "pytorch:launch=3",
            "parameters of software pytorch must be fused, launch_us, peer_us, waits, flash, channels_first, pads, "
            "loss, sums, copies, buffer, ahead, update, clips, workspace_mib, got 'launch=3'",
        ),
        ("pytorch:channels_first=2", "pytorch.channels_first must be 0 or 1, got 2"),
        ("pytorch:launch_us=-1", "pytorch.launch_us must be 0 or a number from 1e-09 to 1e+06, got '-1'"),
        ("torch-compile:pads=2", "torch-compile.pads must be 0 or 1, got 2"),
        ("pytorch:fused=2", "pytorch.fused must be 0 or 1, got 2"),
        ("megatron-2021:waits=3", "megatron-2021.waits must be a whole number from 0 to 2, got 3"),
        ("nanotron:copies=2", "nanotron.copies must be 0 or 1, got 2"),
        ("nanotron:loss=0.5", "nanotron.loss must be a whole number from 0 to 2, got 0.5"),
        ("nanotron:sums=3", "nanotron.sums must be a whole number from 0 to 2, got 3"),
        ("pytorch:flash=4", "pytorch.flash must be one of 0, 1, 2, 3, got 4"),
    ],
)
def test_unknown_software_is_refused(text, rule):
    with pytest.raises(ConfigError) as refused:
        software_of(text)
    assert str(refused.value).startswith(rule)
