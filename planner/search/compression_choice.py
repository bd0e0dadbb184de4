"""Choice of the tensors and gradients of a strategy whose compression shortens the iteration."""

import math
from dataclasses import replace

import numpy as np

from groundwork.errors import InfeasiblePlanError
from groundwork.progress import Progress
from groundwork.units import MILLI
from planner.compression.settings import CompressionSettings
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import Strategy
from planner.lowering.lower_strategy import lower
from planner.lowering.program import KINDS, Program
from planner.memory.peak_memory import check_plan_memory, peak_memory_bytes
from planner.simulation.memory_over_time import replay_that_fits
from planner.strategies.micro_batches import WHOLE_BATCH, MicroBatching
from planner.strategies.recomputation import KEEP_ACTIVATIONS, Recompute

_Item = tuple[str, str]
"""A field of ``CompressionSettings`` that lists layers, and the name of a layer."""
_SAME = 1e-9
"""Relative difference of times up to which they count as equal."""


def choose_compressed_layers(
    model: CostModel,
    strategy: Strategy,
    micro_batching: MicroBatching = WHOLE_BATCH,
    compressed: CompressionSettings | None = None,
    *,
    recompute: Recompute = KEEP_ACTIVATIONS,
    progress: Progress | None = None,
) -> tuple[CompressionSettings, tuple[str, ...]]:
    """Choose the layers whose tensors and gradients are compressed so that the simulated iteration is short.

    Two greedy searches, one from no compression and one from full compression, visit each tensor and each layer's
    gradients once, those with most bytes first, and switch its compression if that shortens the replay.  The better
    of the two results is taken.  Choices that do not fit in memory count as infinitely long.

    Args:
        model: Costs of the network on the cluster.
        strategy: A configuration for every layer.
        micro_batching: Micro-batches of the last layers.
        compressed: Tensors and gradients that may be compressed, and their types.
        recompute: Activations that are computed again.
        progress: Called as ``progress(label, done, total)``.

    Returns:
        Settings that name the layers, and a note on the effect; no layers if no choice fits.
    """
    trial = _Trial(model, strategy, micro_batching, compressed or CompressionSettings(), recompute, progress)
    plain, everything = trial.seconds(frozenset()), trial.seconds(frozenset(trial.items))
    ends = [trial.walk(start) for start in (frozenset[_Item](), frozenset(trial.items))]
    best = min(ends, key=lambda chosen: (trial.seconds(chosen), len(chosen)))
    note = (
        f"Compressing {len(best) or 'none'} of {len(trial.items)} tensors and gradients is fastest: "
        f"{_time_text(trial.seconds(best))} simulated "
        f"(none compressed: {_time_text(plain)}; all: {_time_text(everything)})"
    )
    return trial.compressed(best), (note,)


def _time_text(seconds: float) -> str:
    """Return a time in words; an infinite one stands for a choice that does not fit in memory."""
    return f"{seconds / MILLI:.4g} ms" if math.isfinite(seconds) else "does not fit in memory"


class _Trial:
    """Replays of a strategy with different compression settings, each simulated once."""

    def __init__(
        self,
        model: CostModel,
        strategy: Strategy,
        micro_batching: MicroBatching,
        allowed: CompressionSettings,
        recompute: Recompute,
        progress: Progress | None,
    ) -> None:
        self.allowed, self.recompute, self.progress = allowed, recompute, progress
        self.model, self.spaces, self.micro_batching = model, model.spaces_of(strategy), micro_batching
        self.known: dict[frozenset[_Item], float] = {}
        self.items = self._items()

    def walk(self, chosen: frozenset[_Item]) -> frozenset[_Item]:
        """Switch the compression of one item after another if that shortens the iteration; return the result."""
        for item in self.items:
            other = chosen ^ {item}
            if self.seconds(other) < self.seconds(chosen) * (1 - _SAME):
                chosen = other
        return chosen

    def seconds(self, chosen: frozenset[_Item]) -> float:
        """Return the simulated iteration time of a choice; infinity if it does not fit in memory."""
        if chosen not in self.known:
            if self.progress:
                self.progress("compressing", len(self.known), 2 * len(self.items) + 2)
            self.known[chosen] = self._replayed_s(self._program(self.compressed(chosen)))
        return self.known[chosen]

    def _replayed_s(self, program: Program) -> float:
        """Return the simulated iteration time of a program; infinity if it does not fit in memory."""
        try:
            check_plan_memory(program, peak_memory_bytes(program))
            return replay_that_fits(program).iteration_s
        except InfeasiblePlanError:
            return math.inf

    def compressed(self, chosen: frozenset[_Item]) -> CompressionSettings:
        """Return a choice as settings, with layers in the network's order."""
        names = [layer.name for layer in self.model.graph.layers]
        gradients, activations = (
            tuple(name for name in names if (field, name) in chosen)
            for field in ("gradient_layers", "activation_layers")
        )
        return replace(self.allowed, gradient_layers=gradients, activation_layers=activations)

    def _program(self, compressed: CompressionSettings) -> Program:
        """Lower the strategy with compression settings."""
        return lower(
            self.model, self.spaces, micro_batching=self.micro_batching, compressed=compressed, recompute=self.recompute
        )

    def _items(self) -> list[_Item]:
        """Return the tensors and gradients that are sent and may be compressed, those with most bytes first."""
        graph, program = self.model.graph, self._program(CompressionSettings())
        gradient_syncs = (program.kind == KINDS.index("collective")) & program.syncs_gradients
        fields = {
            "activation_layers": (program.kind == KINDS.index("transfer"), self.allowed.activation),
            "gradient_layers": (gradient_syncs, self.allowed.gradient),
        }
        sizes: dict[_Item, float] = {}
        for field, (tasks, kind) in fields.items():
            moved = np.bincount(program.layer[tasks], program.size_bytes[tasks], minlength=len(graph.layers))
            for i in np.flatnonzero(moved).tolist():
                if kind(graph, i) is not None:
                    sizes[field, graph.layers[i].name] = moved[i]
        return sorted(sizes, key=lambda item: -sizes[item])
