"""What a comparison of strategies found: the data behind the table and the page."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from planner.simulation import LinkUse

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Comparison", "LayerResult", "StrategyResult"]


_NUMBERS = (
    "name", "additive_s", "simulated_s", "images_per_s", "speedup", "moved_bytes", "compute_s",
    "exposed_communication_s", "idle_s", "lower_bound_s", "tasks",
)  # fmt: skip


def _empty_frame() -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame()


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerResult:
    """One layer under one strategy."""

    name: str
    kind: str
    output: str
    """Printed shape, such as ``512 x 64 x 224 x 224``."""
    degrees: dict[str, int]
    """Degree of parallelism in each parallelizable dimension."""
    devices: tuple[int, ...]
    compute_s: float
    gradient_sync_s: float
    transfer_s: float
    """The three terms of Eq. 1; the transfer is that of the layer's inputs."""
    moved_bytes: float
    gradient_sync: str = ""
    """Scheme of the gradient exchange; with ``auto`` also what the next best would take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyResult:
    """One strategy, priced and replayed."""

    name: str
    ladder_s: dict[str, float]
    """Iteration time under each reading, in order: additive, overlap, contention; with sub-batches, ``pipelining``
    after these, which then take the whole batch at once."""
    additive_s: float
    """Eq. 1 from the cost tables."""
    simulated_s: float
    """Steady-state iteration time with overlap and contention."""
    images_per_s: float
    speedup: float
    """Against the whole batch on one device."""
    moved_bytes: float
    """Bytes that leave a device in one iteration: transfers and gradient exchange."""
    compute_s: float
    """Part of ``simulated_s`` in which the busiest device computes."""
    exposed_communication_s: float
    """Part in which that device waits for communication that no arithmetic on it covers."""
    idle_s: float
    """The rest: the three add up to ``simulated_s``."""
    peak_memory_bytes: tuple[float, ...]
    """Per device."""
    lower_bound_s: float
    """No schedule of this strategy's tasks is shorter: busiest resource or longest path."""
    bound_reason: str
    engine_s: float
    tasks: int
    layers: tuple[LayerResult, ...]
    timeline: "pd.DataFrame"
    """One row a task of one steady iteration: id, name, kind, device, stream, layer, phase, iteration,
    sub_batch, start_s, end_s, bytes, origin."""
    link_use: LinkUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """All strategies of one question."""

    model: str
    cluster: str
    batch: int
    devices: tuple[str, ...]
    device_memory_bytes: tuple[float, ...]
    one_device_s: float
    strategies: tuple[StrategyResult, ...]
    refused: dict[str, str] = field(default_factory=dict)
    """Strategies that could not run, with the reason."""
    winner: str = ""
    """Name of the strategy with the shortest simulated iteration; ``layerwise`` where it ties."""
    rank_correlation: float = float("nan")
    """Spearman's, additive against simulated cost over every strategy tried."""
    tried: "pd.DataFrame" = field(default_factory=_empty_frame)
    """Every strategy tried, also random ones: name, additive_s, simulated_s."""
    notes: tuple[str, ...] = ()

    def to_frame(self) -> "pd.DataFrame":
        """One row a strategy: times, bytes and memory, without timelines; the ladder as columns ``ladder.NAME_s``."""
        import pandas as pd

        rows = []
        for strategy in self.strategies:
            row = {each: getattr(strategy, each) for each in _NUMBERS}
            row["peak_memory_bytes"] = max(strategy.peak_memory_bytes)
            rows.append(row | {f"ladder.{reading}_s": time for reading, time in strategy.ladder_s.items()})
        return pd.DataFrame(rows)
