"""``orrery plan``: a plan made from a request, and its file."""

from dataclasses import replace
from typing import Annotated

from groundwork.errors import DeviceMemoryError
from orrery.terminal.options import JsonOption, PriceOption, price_of
from orrery.terminal.output import Out, out_files, out_option, print_json
from orrery.terminal.plan_view import print_plan, refusal_with_command
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.views import plan_values
from planner.plan.plan_request import PlanRequest


@takes_requests
def orrery_plan(
    *,
    request: PlanRequest,
    out: Annotated[Out | None, out_option("plan.json")] = None,
    price: PriceOption = None,
    json: JsonOption = False,
) -> None:
    """Choose how every layer is split over the devices, and print or write the plan."""
    from hwprofiles.catalogue.cluster_catalogue import load_cluster
    from planner.models.registry import load_model
    from planner.plan.make_plan import simulated_plan
    from planner.plan.plan_file import save_plan

    paid = price_of(request.cluster, price)
    with out_files(out) as files, progress_bar("planning") as progress:
        graph = load_model(request.model, batch=request.batch, element_bytes=request.element_bytes)
        cluster = load_cluster(request.cluster)
        try:
            planned = simulated_plan(graph, cluster, request, progress=progress)
        except DeviceMemoryError as error:
            raise refusal_with_command(error, request, out.typed if out else None, cluster, progress) from None
        for file in files:
            save_plan(planned.plan, file)
    planned = replace(planned, rates=planned.rates.priced(paid))
    typed = {name: getattr(request, name) for name in ("model", "cluster", "batch")}
    values = {**typed, "strategy": request.text, **plan_values(planned)}
    print_json(values) if json else print_plan(planned, values)
