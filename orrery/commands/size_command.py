"""``orrery size``: how many devices, how large a batch, how fast a network, which offer, and what training takes."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from groundwork.progress import Progress
from groundwork.requests import whole_number
from orrery.terminal.command_groups import GroupedCommand
from orrery.terminal.completion import COMPLETERS
from orrery.terminal.options import ClusterOption, JsonOption, PriceOption, price_of
from orrery.terminal.output import Out, out_files, out_option, print_json, print_lines, write_results
from orrery.terminal.progress import progress_bar
from orrery.terminal.request_options import takes_requests
from orrery.terminal.signals import kept
from orrery.terminal.views import print_rich
from studies.size.size_requests import BudgetRequest, SubjectRequest, TrainingRequest
from studies.size.typed_values import duration_s

if TYPE_CHECKING:
    from studies.size.size_answer import SizeAnswer


_OutOption = Annotated[Out | None, out_option("index.html", "size.json")]

size_app = typer.Typer(
    help="Answer questions of size: devices for a deadline, batch, budget, network, offers; with reasons and intervals."
)

_Clusters = Annotated[
    list[str],
    typer.Option(
        "--cluster",
        metavar="C",
        help="Cluster, or cluster file; may be given several times.",
        autocompletion=COMPLETERS["cluster"],
    ),
]
_MostDevices = Annotated[
    int, typer.Option(parser=whole_number, metavar="N", help="Largest number of devices that is tried.")
]
_Within = Annotated[float | None, typer.Option(parser=duration_s, metavar="TIME", help="Deadline, such as 36h or 2d.")]


@size_app.command("deadline", cls=GroupedCommand)
@takes_requests
def orrery_size_deadline(
    *,
    subject: SubjectRequest,
    cluster: ClusterOption,
    training: TrainingRequest,
    within: Annotated[float, typer.Option(parser=duration_s, metavar="TIME", help="Deadline, such as 36h or 2d.")],
    price: PriceOption = None,
    most_devices: _MostDevices = 256,
    out: _OutOption = None,
    json: JsonOption = False,
) -> None:
    """Find the fewest devices that train within a deadline."""
    from studies.size.deadline import fewest_devices

    def answer(progress: Progress | None) -> "SizeAnswer":
        return fewest_devices(
            subject.subject(),
            cluster,
            training.training(),
            within_s=within,
            most_devices=most_devices,
            price=price_of(cluster, price),
            progress=progress,
        )

    _answer(answer, out, json)


@size_app.command("batch", cls=GroupedCommand)
@takes_requests
def orrery_size_batch(
    *, subject: SubjectRequest, cluster: ClusterOption, out: _OutOption = None, json: JsonOption = False
) -> None:
    """Find the largest batch of each device that fits in memory."""
    from studies.size.memory_limit import largest_batch

    _answer(lambda progress: largest_batch(subject.subject(), cluster, progress=progress), out, json)


@size_app.command("budget", cls=GroupedCommand)
@takes_requests
def orrery_size_budget(
    *,
    subject: SubjectRequest,
    cluster: _Clusters,
    training: TrainingRequest,
    budget: BudgetRequest,
    price: PriceOption = None,
    within: _Within = None,
    most_devices: _MostDevices = 256,
    out: _OutOption = None,
    json: JsonOption = False,
) -> None:
    """Find the cluster that trains fastest for a budget; with --within the cheapest that keeps both."""
    from studies.size.budget import Budget, best_for_budget
    from studies.size.typed_values import read_prices

    def answer(progress: Progress | None) -> "SizeAnswer":
        prices = read_prices(price or [], cluster)
        limit = Budget(money=budget.money, device_hours=budget.device_hours, prices=prices)
        return best_for_budget(
            subject.subject(),
            cluster,
            training.training(),
            limit,
            within_s=within,
            most_devices=most_devices,
            progress=progress,
        )

    _answer(answer, out, json)


@size_app.command("network", cls=GroupedCommand)
@takes_requests
def orrery_size_network(
    *,
    subject: SubjectRequest,
    cluster: ClusterOption,
    link: Annotated[str, typer.Option(metavar="CLASS", help="Class of links, such as ib.")],
    loss: Annotated[float, typer.Option(metavar="PERCENT", help="Share of the samples/s that may be lost.")] = 5.0,
    out: _OutOption = None,
    json: JsonOption = False,
) -> None:
    """Find the slowest links of a class that cost less than a share of the speed."""
    from studies.size.network import slowest_network

    _answer(
        lambda progress: slowest_network(subject.subject(), cluster, link=link, loss=loss / 100, progress=progress),
        out,
        json,
    )


@size_app.command("offers", cls=GroupedCommand)
@takes_requests
def orrery_size_offers(
    *,
    subject: SubjectRequest,
    cluster: _Clusters,
    training: TrainingRequest,
    price: PriceOption = None,
    within: _Within = None,
    out: _OutOption = None,
    json: JsonOption = False,
) -> None:
    """Compare clusters as they are: the fastest, or with prices the cheapest; of one cluster the time to train."""
    from studies.size.offers import best_offer
    from studies.size.typed_values import read_prices

    def answer(progress: Progress | None) -> "SizeAnswer":
        prices = read_prices(price or [], cluster)
        return best_offer(
            subject.subject(),
            cluster,
            training.training(),
            prices=prices,
            by="money" if prices else "time",
            within_s=within,
            progress=progress,
        )

    _answer(answer, out, json)


def _answer(search: Callable[[Progress | None], "SizeAnswer"], out: Out | None, json: bool) -> None:
    """Search, print the answer first, and write the page with its numbers."""
    from reports.pages.decision_pages import size_html
    from reports.tables.size_text import size_headline, size_lines, size_table

    with out_files(out) as files, progress_bar("searching") as progress:
        answer = kept(search, progress)
        values = {"headline": size_headline(answer), **answer.values()}
        write_results(files, lambda: size_html(answer), values)
    if json:
        return print_json(values)
    print(size_headline(answer))
    print_rich(size_table(answer))
    print_lines(size_lines(answer), out)
