"""Where compression pays: which tensors and gradients of a strategy are better sent as codes."""

import math
from dataclasses import replace

import numpy as np

from hwprofiles import InfeasiblePlanError, Progress
from planner.compression import Compressed
from planner.cost import CostModel, applied
from planner.lowering import KINDS, Program, lower
from planner.memory import MOMENTUM, MemoryPolicy, check_plan_memory, peak_memory_bytes
from planner.parallel import KEEP_ACTIVATIONS, WHOLE_BATCH, MicroBatching, Recompute, Strategy
from planner.simulation import replay_that_fits

__all__ = ["choose_compressed_layers"]

_Item = tuple[str, str]
"""A field of ``Compressed`` that lists layers, and a layer."""
_SAME = 1e-9
"""Relative difference below which a time is no shorter."""


def choose_compressed_layers(
    model: CostModel,
    strategy: Strategy,
    micro_batching: MicroBatching = WHOLE_BATCH,
    compressed: Compressed | None = None,
    *,
    recompute: Recompute = KEEP_ACTIVATIONS,
    memory_policy: MemoryPolicy = MOMENTUM,
    progress: Progress | None = None,
) -> tuple[Compressed, tuple[str, ...]]:
    """Compress, of what may be, only what shortens the simulated iteration and fits in memory.

    Greedy, twice: from nothing compressed, and from everything, each tensor and each layer's gradients in turn, the
    most bytes first, changes over where that shortens the replay.  The shorter of the two ends is taken.

    Args:
        model: Prices.
        strategy: A configuration for every layer.
        cut: Which layers take the mini-batch in sub-batches.
        compressed: What may be compressed, and with which types.
        recompute: Which activations are computed again.
        keeping: What must fit beside the tensors of the network.
        progress: Called as ``progress(label, done, total)``.

    Returns:
        What to compress, layer by layer, and a note of what it brings; nothing where no choice fits.
    """
    trial = _Trial(model, strategy, micro_batching, compressed or Compressed(), recompute, memory_policy, progress)
    plain, everything = trial.seconds(frozenset()), trial.seconds(frozenset(trial.items))
    ends = [trial.walk(start) for start in (frozenset[_Item](), frozenset(trial.items))]
    best = min(ends, key=lambda chosen: (trial.seconds(chosen), len(chosen)))
    brings = _told(trial.seconds(best))
    note = (
        f"compression: {len(best)} of {len(trial.items)} tensors and gradients, {brings} simulated; "
        f"{_told(plain)} with none, {_told(everything)} with all"
    )
    return trial.compressed(best), (note,)


def _told(seconds: float) -> str:
    return f"{seconds:.4g} s" if math.isfinite(seconds) else "no time, for it does not fit in memory,"


class _Trial:
    """Replays a strategy with some of its messages compressed; each choice once."""

    def __init__(
        self,
        model: CostModel,
        strategy: Strategy,
        micro_batching: MicroBatching,
        allowed: Compressed,
        recompute: Recompute,
        memory_policy: MemoryPolicy,
        progress: Progress | None,
    ) -> None:
        self.allowed, self.recompute, self.memory_policy, self.progress = allowed, recompute, memory_policy, progress
        self.model, self.spaces, self.micro_batching = applied(model, strategy, micro_batching)
        self.known: dict[frozenset[_Item], float] = {}
        self.items = self._items()

    def walk(self, chosen: frozenset[_Item]) -> frozenset[_Item]:
        """Change one thing after another, where that shortens the iteration."""
        for item in self.items:
            other = chosen ^ {item}
            if self.seconds(other) < self.seconds(chosen) * (1 - _SAME):
                chosen = other
        return chosen

    def seconds(self, chosen: frozenset[_Item]) -> float:
        """Simulated iteration time; infinite where it does not fit in memory."""
        if chosen not in self.known:
            if self.progress:
                self.progress("compressing", len(self.known), 2 * len(self.items) + 2)
            self.known[chosen] = self._replayed_s(self._program(self.compressed(chosen)))
        return self.known[chosen]

    def _replayed_s(self, program: Program) -> float:
        try:
            check_plan_memory(program, peak_memory_bytes(program, self.memory_policy))
            return replay_that_fits(program, self.memory_policy).iteration_s
        except InfeasiblePlanError:
            return math.inf

    def compressed(self, chosen: frozenset[_Item]) -> Compressed:
        """A choice as layers, in their order."""
        names = [layer.name for layer in self.model.graph.undivided.layers]
        gradients, activations = (
            tuple(name for name in names if (field, name) in chosen)
            for field in ("gradient_layers", "activation_layers")
        )
        return replace(self.allowed, gradient_layers=gradients, activation_layers=activations)

    def _program(self, compressed: Compressed) -> Program:
        return lower(
            self.model, self.spaces, micro_batching=self.micro_batching, compressed=compressed, recompute=self.recompute
        )

    def _items(self) -> list[_Item]:
        """What moves and may be compressed, the most bytes first."""
        graph, program = self.model.graph, self._program(Compressed())
        sums = (program.kind == KINDS.index("collective")) & ~program.statistics
        fields = {
            "activation_layers": (program.kind == KINDS.index("transfer"), self.allowed.activation),
            "gradient_layers": (sums, self.allowed.gradient),
        }
        sizes: dict[_Item, float] = {}
        for field, (mine, kind) in fields.items():
            moved = np.bincount(program.layer[mine], program.size_bytes[mine], minlength=len(graph.layers))
            for i in np.flatnonzero(moved).tolist():
                if kind(graph, i) is not None:
                    item = field, graph.model_layer(i).name
                    sizes[item] = sizes.get(item, 0.0) + moved[i]
        return sorted(sizes, key=lambda item: -sizes[item])
