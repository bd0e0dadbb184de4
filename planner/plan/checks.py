"""What can be asked of which strategy."""

from dataclasses import dataclass
from typing import NoReturn

from hwprofiles import ConfigError
from planner.compression import Compressed
from planner.memory import MemoryPolicy
from planner.parallel import SEARCHED, MicroBatching
from planner.search import Pipeline, check_gradient_sync_order, has_stages

__all__ = ["PlanChecks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanChecks:
    """What is asked of a plan on its model and cluster.  Fields as the arguments of ``planner.plan.plan.make_plan``.

    Raises:
        ConfigError: An unknown order of sums; a search is asked for one, a cut, compression or recomputation, which
            it does not know; a pipeline for sub-batches; another strategy for what is a search's or a pipeline's; or
            compression where nothing is compressed.
    """

    strategy: str
    gradient_sync_order: str
    micro_batching: MicroBatching
    pipeline: Pipeline | None
    compressed: Compressed
    where_it_pays: bool
    recompute: str
    memory_policy: MemoryPolicy
    refine: int

    def __post_init__(self) -> None:
        name, searched = self.strategy, self.strategy in SEARCHED
        if self.refine < 0 or (self.refine and not searched):
            raise ConfigError(
                "refine must be >= 0, and 0 for strategies other than layerwise and hybrid, "
                f"got {self.refine} for {name}"
            )
        if (searched or has_stages(name)) and self.micro_batching.parts > 1:
            why = "whose search does not know them" if searched else "which has micro-batches"
            raise ConfigError(f"sub_batches must be 1 for {name}, {why}, got {self.micro_batching.parts}")
        if self.pipeline and not has_stages(name):
            raise ConfigError(f"stages, micro_batches, schedule and stage_at are for the strategy pipeline, not {name}")
        if searched and self.compressed:
            self._refuse("compression", "none", self.compressed.gradients or self.compressed.activations)
        if searched and self.recompute not in ("", "none"):
            self._refuse("recompute", "none", self.recompute)
        if self.where_it_pays and not self.compressed:
            raise ConfigError("compress_where must be all where nothing is compressed, got 'pays'")
        check_gradient_sync_order(self.gradient_sync_order)
        if searched and self.gradient_sync_order != "end":
            self._refuse("gradient_sync_order", "end", self.gradient_sync_order)

    def _refuse(self, field: str, only: str, given: str) -> NoReturn:
        raise ConfigError(f"{field} must be {only} for {self.strategy}, whose search does not know it, got {given!r}")
