"""What can be asked of which strategy."""

from hwprofiles.errors import ConfigError
from planner.compressed import Compressed
from planner.cut import Cut
from planner.exchange_order import check_exchange_order
from planner.hybrid_search import HYBRID
from planner.pipeline import Pipeline, has_stages

__all__ = ["SEARCHED", "check_asked"]

SEARCHED = ("layerwise", HYBRID)
"""Strategies that are searched."""


def check_asked(
    strategy: str, cut: Cut, pipeline: Pipeline | None, compressed: Compressed, *, where_it_pays: bool, recompute: str,
    refine: int, exchange_order: str,
) -> None:  # fmt: skip
    """Refuse what a strategy cannot be asked for.

    Args:
        strategy, cut, pipeline, compressed, where_it_pays, recompute, refine, exchange_order: As for
            ``planner.plan.make_plan``.

    Raises:
        ConfigError: An unknown order of sums; a search is asked for one, a cut, compression or recomputation, which
            it does not know; a pipeline for sub-batches; another strategy for what is a search's or a pipeline's; or
            compression where nothing is compressed.
    """
    if refine < 0 or (refine and strategy not in SEARCHED):
        raise ConfigError(
            f"refine must be >= 0, and 0 for strategies other than layerwise and hybrid, got {refine} for {strategy}"
        )
    searched = strategy in SEARCHED
    if (searched or has_stages(strategy)) and cut.parts > 1:
        why = "whose search does not know them" if searched else "which has micro-batches"
        raise ConfigError(f"sub_batches must be 1 for {strategy}, {why}, got {cut.parts}")
    if pipeline and not has_stages(strategy):
        raise ConfigError(f"stages, micro_batches, schedule and stage_at are for the strategy pipeline, not {strategy}")
    if searched and compressed:
        given = compressed.gradients or compressed.activations
        raise ConfigError(f"compression must be none for {strategy}, whose search does not know it, got {given!r}")
    if searched and recompute not in ("", "none"):
        raise ConfigError(f"recompute must be none for {strategy}, whose search does not know it, got {recompute!r}")
    if where_it_pays and not compressed:
        raise ConfigError("compress_where must be all where nothing is compressed, got 'pays'")
    check_exchange_order(exchange_order)
    if searched and exchange_order != "end":
        raise ConfigError(
            f"exchange_order must be end for {strategy}, whose search does not know it, got {exchange_order!r}"
        )
