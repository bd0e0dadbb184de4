"""A plan: one strategy for one model, batch and cluster, with its price and the statistics of its search."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from groundwork.notebook_tables import html_table
from planner.compression.settings import UNCOMPRESSED, CompressionSettings
from planner.cost.all_reduce import SyncChoice
from planner.layouts.configurations import Configuration
from planner.plan.plan_request import PlanRequest
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching
from planner.strategies.recomputation import KEEP_ACTIVATIONS, Recompute


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A strategy for every layer of a model, priced on a cluster."""

    request: PlanRequest
    """Request that the plan was made for."""
    configurations: Mapping[str, Configuration]
    """Degrees and devices of every layer."""
    micro_batching: MicroBatching = WHOLE_BATCH
    """Layers that compute in micro-batches, and their schedule."""
    compressed: CompressionSettings = UNCOMPRESSED
    """Tensors and gradients that are compressed to be sent."""
    recompute: Recompute = KEEP_ACTIVATIONS
    """Activations that are computed again in the backward pass."""
    model_digest: str
    cluster_digest: str
    costs_digest: str
    """Hash of the compute profiles that priced the plan."""
    additive_s: float
    """Iteration time by Eq. 1, in which nothing overlaps."""
    simulated_s: float
    """Steady-state iteration time with overlap and contention."""
    tables_s: float = 0.0
    """Time that the search spent on cost tables."""
    search_s: float = 0.0
    """Time that the search spent on elimination."""
    width: int = 0
    """Most layers that one layer was joined with when it was eliminated; 0 without a search."""
    simulated_plans: int = 0
    """Plans simulated in the refinement; 0 without one, and then ``lower_bound_s`` and ``origin`` are not set."""
    lower_bound_s: float = 0.0
    """Time that no schedule of this plan's tasks can beat."""
    origin: str = ""
    """The strategy that the refinement started from, and the number of changes to it."""
    gradient_syncs: Mapping[str, SyncChoice] = field(default_factory=dict)
    """Algorithm for each layer's most expensive buffer, and the next cheapest, where they were chosen."""
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return (
            f"Plan({self.model} on {self.cluster}, batch {self.batch}, {self.strategy}: "
            f"{self.simulated_s:.4g} s an iteration, simulated)"
        )

    def _repr_html_(self) -> str:
        """Return the degrees and devices of every layer as a table, for notebooks."""
        rows = [
            {"layer": name, "degrees": each.describe(), "devices": ", ".join(map(str, each.devices))}
            for name, each in self.configurations.items()
        ]
        return html_table(repr(self), rows)

    @property
    def model(self) -> str:
        """Name and parameters of the model."""
        return self.request.model

    @property
    def cluster(self) -> str:
        """Catalogue entry or path of the cluster, with parameters."""
        return self.request.cluster

    @property
    def batch(self) -> int:
        """Samples in a mini-batch."""
        return self.request.batch

    @property
    def strategy(self) -> str:
        """Name of the strategy, or the file that it came from, with the options that were given in one text with it."""
        return self.request.text

    @property
    def gradient_sync(self) -> str:
        """Algorithm that synchronises gradients."""
        return self.request.gradient_sync or "ring"

    @property
    def gradient_sync_order(self) -> str:
        """Order in which gradients are synchronised and parameters updated."""
        return self.request.gradient_sync_order

    @property
    def batch_norm(self) -> str:
        """Samples whose statistics normalise: ``local`` or ``reduced``."""
        return self.request.batch_norm

    @property
    def optimizer(self) -> str:
        """Optimizer whose state must fit in memory."""
        return self.request.optimizer

    @property
    def element_bytes(self) -> int:
        """Size of an element of a tensor: 2, 4 or 8."""
        return self.request.element_bytes

    @property
    def gap(self) -> float:
        """Excess of a refined plan's iteration time over its lower bound, as a share of the bound."""
        return self.simulated_s / self.lower_bound_s - 1
