"""TurboDL's gains on a P100, beside those of the same schedules of ours, simulated.

Each gain is computed under both models of occupancy.  By ``geometry`` a kernel takes the room of its blocks, so that a
full grid leaves only its unfilled last wave to others.  By ``throughput`` it takes only the arithmetic and memory that
its speed needs, so that every stall is left to others.  A device is between the two; the paper's gains, which need idle
room beside kernels that fill the device with blocks, are near the second.

Fig. 10 is left out, because it prints no numbers.

Source: "TurboDL", Secs. 4.2 and 4.3.
"""

from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np

from groundwork.progress import Progress
from hwprofiles.compute.kernel_occupancy import OCCUPANCY_MODELS
from planner.lowering.program import KINDS
from planner.models.registry import load_model
from studies.reproduce.rows import ClaimResult, PaperRow, claims_of, row
from studies.streams.schedule_comparison import StreamComparison, compare_schedules, work_of
from studies.streams.stream_request import OccupancyModel, StreamRequest

DEVICE = "p100"


def turbodl_rows(progress: Progress | None = None) -> Iterator[PaperRow]:
    """Yield every row in the paper's order; a gain has one for each model of occupancy."""
    for claim in claims_of("turbodl", progress):
        yield from claim_rows(claim)


def claim_rows(claim: dict[str, str]) -> Iterator[PaperRow]:
    """Recompute one claim of ``turbodl_claims``."""
    name, *words = claim["key"].split()
    source = f"TurboDL, {claim['source']}: {claim['claim']}"
    if name in ("streams", "baseline_streams"):
        ours, note = TURBODL_CLAIMS[name](words[0], 1, OCCUPANCY_MODELS[0])
        yield row(source, claim["value"], ours, claim["unit"], note)
        return
    for model in OCCUPANCY_MODELS:
        ours, note = TURBODL_CLAIMS[name](words[0], int(words[1]), model)
        yield row(f"{source}, occupancy by {model}", claim["value"], ours, claim["unit"], note)


@cache
def _compared(model: str, batch: int, occupancy_model: OccupancyModel) -> StreamComparison:
    """Return the schedules of a network on the paper's device."""
    request = StreamRequest(device=DEVICE, occupancy_model=occupancy_model)
    return compare_schedules(load_model(model, batch=batch), request)


def _gain_of(name: str, model: str, batch: int, occupancy_model: OccupancyModel) -> tuple[float, str]:
    """Return the gain of a schedule over one stream, and a note on the gains of other schedules."""
    compared = _compared(model, batch, occupancy_model)
    plain, barriers, chosen = compared.results[0], compared.result("layers"), compared.result(name)
    best = min(compared.results, key=lambda each: each.iteration_s)
    note = f"{barriers.iteration_s / chosen.iteration_s:.2f} over streams with barriers between layers"
    if best is not chosen:
        note += (
            f"; {best.name} gains {compared.gain(best):.2f}, because weight gradients that are delayed to the end fill "
            "the device less"
        )
    if occupancy_model == "geometry":
        note += "; blocks that fill the device leave no room to others"
    return compared.gain(chosen), f"{note}; filling every gap would gain {1 / plain.occupancy:.2f}"


def _percent(model: str, batch: int, occupancy_model: OccupancyModel) -> ClaimResult:
    gain, note = _gain_of("critical-path", model, batch, occupancy_model)
    return 100 * (gain - 1), note


def _streams(model: str, batch: int, occupancy_model: OccupancyModel) -> ClaimResult:
    result = _compared(model, batch, occupancy_model).result("critical-path")
    return float(result.streams), ", ".join(result.labels)


def _baseline_streams(model: str, batch: int, occupancy_model: OccupancyModel) -> ClaimResult:
    """Count the streams of Caffe, which gives every sub-task of a convolution a stream of its own."""
    program = work_of(load_model(model, batch=batch), DEVICE).program
    convolution = np.array([layer.operation.kind == "convolution" for layer in program.graph.layers])
    kinds = [KINDS.index(f"{name}_gradient") for name in ("activation", "weight", "bias")]
    own = np.isin(program.kind, kinds) & convolution[program.layer]
    return float(np.count_nonzero(own)), "a stream for every gradient of every convolution; the first has two"


TURBODL_CLAIMS: dict[str, Callable[[str, int, OccupancyModel], ClaimResult]] = {
    "gain": partial(_gain_of, "critical-path"),
    "percent": _percent,
    "asynchronous": partial(_gain_of, "asynchronous"),
    "streams": _streams,
    "baseline_streams": _baseline_streams,
}
"""Function that recomputes a claim, by the first word of its key."""
