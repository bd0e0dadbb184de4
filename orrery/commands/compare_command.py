"""``orrery compare``: strategies for one model on one cluster, side by side."""

from dataclasses import asdict, dataclass
from shlex import join
from typing import Annotated

from groundwork.errors import InfeasiblePlanError
from groundwork.requests import option
from orrery.terminal.options import (
    BatchOption,
    ClusterOption,
    ComparedConditions,
    JsonOption,
    ModelArgument,
    PriceOption,
    StrategiesOption,
    price_of,
)
from orrery.terminal.output import Out, out_files, out_option, print_json, print_lines, write_results
from orrery.terminal.plan_view import typed_options
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.signals import kept
from orrery.terminal.views import comparison_values, print_rich
from planner.plan.plan_options import SyncAlgorithm


@dataclass(frozen=True, slots=True, kw_only=True)
class _Searched:
    """What is searched for the strategies that are compared."""

    gradient_sync: SyncAlgorithm | None = option(
        None,
        help="All-reduce that synchronises gradients; auto picks the fastest for each layer; else library, where the "
        "cluster describes one, or ring.",
    )
    refine: int = option(
        0,
        low=0,
        metavar="N",
        help="Plans to simulate to improve on the layer-wise optimum; 0 compares it with the usual strategies only.",
    )


@takes_requests
def orrery_compare(
    model: ModelArgument,
    *,
    conditions: ComparedConditions,
    cluster: ClusterOption,
    batch: BatchOption,
    strategies: StrategiesOption = "data,model,owt,spatial,layerwise",
    searched: _Searched,
    out: Annotated[Out | None, out_option("index.html", "comparison.json")] = None,
    price: PriceOption = None,
    json: JsonOption = False,
) -> None:
    """Compare strategies: a table, and a page that shows why one is faster."""
    from hwprofiles.catalogue.cluster_catalogue import load_cluster
    from planner.models.registry import load_model
    from planner.plan.compare_strategies import compare
    from planner.plan.no_strategy_fits import NoStrategyFitsError
    from planner.plan.plan_options import DTYPE_BYTES
    from planner.plan.plan_text import plan_list_text, split_plan_texts
    from reports.pages.comparison_page import comparison_html
    from reports.tables.comparison_summary import comparison_headline, comparison_table, pace_lines

    names, paid = split_plan_texts(strategies), price_of(cluster, price)
    with out_files(out) as files, progress_bar(model) as progress:
        graph = load_model(model, batch=batch, element_bytes=DTYPE_BYTES[conditions.dtype])
        machines = load_cluster(cluster)
        try:
            comparison = kept(
                compare, graph, machines, names, **asdict(searched), **asdict(conditions), progress=progress
            )
        except NoStrategyFitsError as error:
            words = ["orrery", "compare", model, "--cluster", cluster, "--batch", str(error.batch)]
            words += ["--strategies", plan_list_text(names)]
            words += ["--out", str(out.typed)] if out else []
            words += [word for each in price or () for word in ("--price", each)]
            words += [*typed_options(searched), *typed_options(conditions)]
            works = f"; this works: {join(words)}" if error.batch else ""
            raise InfeasiblePlanError(f"{error}{works}") from None
        comparison = comparison.priced(paid)
        values = comparison_values(comparison, page=out.files[0] if out else None)
        write_results(files, lambda: comparison_html(comparison), values)
    if json:
        return print_json(values)
    print_rich(comparison_table(comparison))
    refused = [f"{name} was refused: {reason}" for name, reason in comparison.refused.items()]
    print_lines([comparison_headline(comparison), *pace_lines(comparison), *refused, *comparison.notes], out)
