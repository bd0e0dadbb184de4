"""TurboDL's gains on a P100, beside those of the same schedules of ours, simulated.

Each gain is computed under both readings of occupancy.  By ``geometry`` a kernel takes the room of its blocks: what a
full grid leaves to others is the unfilled last wave.  By ``throughput`` it takes only the arithmetic and memory that
its speed asks for: what is left includes every stall.  A device is between the two; the paper's gains, which need idle
room beside kernels that fill the device with blocks, are near the second.

Left out is Fig. 10, which prints no numbers.

Source: "TurboDL", Secs. 4.2 and 4.3.
"""

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

from hwprofiles import Progress
from hwprofiles.compute import READINGS
from planner.lowering import KINDS
from planner.models import load_model
from studies.reproduce.rows import PaperRow, Value, row, stored
from studies.streams import StreamComparison, StreamRequest, compare_schedules, work_of

__all__ = ["TURBODL_CLAIMS", "claim_rows", "turbodl_rows"]

DEVICE = "p100"
_Answer = tuple[Value, str]


def turbodl_rows(progress: Progress | None = None) -> Iterator[PaperRow]:
    """Every row, in the paper's order: of a gain, one a reading of occupancy."""
    claims = stored("turbodl_claims")
    for done, claim in enumerate(claims):
        if progress:
            progress(claim["claim"], done, len(claims))
        yield from claim_rows(claim)


def claim_rows(claim: dict[str, str]) -> Iterator[PaperRow]:
    """Recompute one claim of ``turbodl_claims``."""
    name, *words = claim["key"].split()
    source = f"TurboDL, {claim['source']}: {claim['claim']}"
    if name in ("streams", "baseline_streams"):
        ours, why = TURBODL_CLAIMS[name](words[0], 1, READINGS[0])
        yield row(source, claim["value"], ours, claim["unit"], why)
        return
    for reading in READINGS:
        ours, why = TURBODL_CLAIMS[name](words[0], int(words[1]), reading)
        yield row(f"{source}, occupancy by {reading}", claim["value"], ours, claim["unit"], why)


@cache
def _compared(model: str, batch: int, reading: str) -> StreamComparison:
    return compare_schedules(StreamRequest(graph=load_model(model, batch=batch), device=DEVICE, reading=reading))


def _answer(model: str, batch: int, reading: str, name: str) -> tuple[float, str]:
    """Gain of a schedule over one stream, and what stands beside it."""
    found = _compared(model, batch, reading)
    plain, barriers, mine = found.results[0], found.result("layers"), found.result(name)
    best = min(found.results, key=lambda each: each.iteration_s)
    why = f"{barriers.iteration_s / mine.iteration_s:.2f} over streams with barriers between layers"
    if best is not mine:
        why += (
            f"; {best.name} gains {found.gain(best):.2f}, for weight gradients delayed to the end fill the device less"
        )
    if reading == "geometry":
        why += "; blocks that fill the device leave others no room"
    return found.gain(mine), f"{why}; filling every gap would gain {1 / plain.occupancy:.2f}"


def _gain(model: str, batch: int, reading: str) -> _Answer:
    return _answer(model, batch, reading, "critical-path")


def _asynchronous(model: str, batch: int, reading: str) -> _Answer:
    return _answer(model, batch, reading, "asynchronous")


def _percent(model: str, batch: int, reading: str) -> _Answer:
    gain, why = _gain(model, batch, reading)
    assert isinstance(gain, float)
    return 100 * (gain - 1), why


def _streams(model: str, batch: int, reading: str) -> _Answer:
    found = _compared(model, batch, reading).result("critical-path")
    return float(found.streams), ", ".join(found.labels)


def _baseline_streams(model: str, batch: int, reading: str) -> _Answer:
    """Caffe gives every sub-task of a convolution a stream of its own."""
    program = work_of(load_model(model, batch=batch), DEVICE).program
    convolution = np.array([layer.operation.kind == "convolution" for layer in program.graph.layers])
    kinds = [KINDS.index(f"{name}_gradient") for name in ("activation", "weight", "bias")]
    own = np.isin(program.kind, kinds) & convolution[program.layer]
    return float(np.count_nonzero(own)), "a stream for every gradient of every convolution; the first has two"


TURBODL_CLAIMS: dict[str, Callable[[str, int, str], _Answer]] = {
    "gain": _gain,
    "percent": _percent,
    "asynchronous": _asynchronous,
    "streams": _streams,
    "baseline_streams": _baseline_streams,
}
"""How a claim is recomputed, by the first word of its key."""
