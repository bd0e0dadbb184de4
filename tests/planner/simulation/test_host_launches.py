"""Launches of hosts, against the recurrence of a device that begins no kernel before its launch."""

import numpy as np
import pytest
from plans import cluster_of

from groundwork.errors import ConfigError
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


@pytest.mark.parametrize("options", [{}, {"micro_batches": 2}, {"recompute": "segments"}])
def test_engines_agree_and_more_launches_take_no_less(options):
    times = []
    for text in ("pytorch:launch_us=0", "pytorch:launch_us=5", "pytorch:launch_us=200"):
        found = _replayed("gpt2:layers=2,hidden=128,heads=2,sequence=64,words=512", 4, text, **options)
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
        software=f"torch-compile:launch_us={launch_us},waits=1,sums=2",  # sums=1 has fewer launches at first
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
            "software must be one of ideal, pytorch, torch-compile, megatron-2021, nanotron, cuda-graph, got 'pytorh'",
        ),
        (
            "pytorch:launch=3",
            "parameters of software pytorch must be fused, launch_us, waits, flash, channels_first, loss, sums, "
            "copies, update, clips, got 'launch=3'",
        ),
        ("pytorch:channels_first=2", "pytorch.channels_first must be 0 or 1, got 2"),
        ("pytorch:launch_us=-1", "pytorch.launch_us must be 0 or a number from 1e-09 to 1e+06, got '-1'"),
        ("pytorch:fused=2", "pytorch.fused must be 0 or 1, got 2"),
        ("nanotron:copies=2", "nanotron.copies must be 0 or 1, got 2"),
        ("nanotron:loss=0.5", "nanotron.loss must be a whole number from 0 to 2, got 0.5"),
        ("nanotron:sums=3", "nanotron.sums must be a whole number from 0 to 2, got 3"),
        ("pytorch:flash=3", "pytorch.flash must be one of 0, 1, 2, got 3"),
    ],
)
def test_unknown_software_is_refused(text, rule):
    with pytest.raises(ConfigError) as refused:
        software_of(text)
    assert str(refused.value).startswith(rule)
