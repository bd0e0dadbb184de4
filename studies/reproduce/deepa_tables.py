"""DeePa's Tables 2 and 3: what one layer, or three, cost under five configurations.

The paper's form, transfer and update as total bytes over one bandwidth, is our cost model on a bus with a central
parameter server.  Of p replicas, or p readers of one tensor, the paper counts all; the one that holds the server or
the part itself moves nothing here, so ours are (p - 1) / p of that where the rest is equal.
"""

from collections.abc import Iterator

import numpy as np

from planner.cost import CostModel
from planner.parallel import ConfigSpace
from studies.reproduce.paper_clusters import BUS_BYTES_PER_S
from studies.reproduce.priced_cases import PricedCase, PricedCases
from studies.reproduce.rows import PaperRow, row, stored

__all__ = ["Costs", "costs_ms", "table_rows"]

_TABLES = {"2": ("alexnet", ("fc1",)), "3": ("vgg16", ("conv5_1", "conv5_2", "conv5_3"))}
COLUMNS = ("transfer", "compute", "update", "total")
_LETTERS = {"sample": "n", "channel": "c", "height": "h", "width": "w"}
Costs = dict[str, float]
"""Milliseconds by column."""


def table_rows() -> Iterator[PaperRow]:
    """A row for every cell of both tables, then one for the configuration that each calls the best."""
    bench, rows = PricedCases(), stored("deepa_tables")
    for table, (network, layers) in _TABLES.items():
        model = bench.model(PricedCase(network, 512, "bus k80", "ps"))
        lines = [line for line in rows if line["table"] == table]
        ours = [costs_ms(model, layers, {key: int(line[key]) for key in "nchw"}) for line in lines]
        for line, costs in zip(lines, ours, strict=True):
            notes = _notes(table, line, model, layers) | {"total": _with_printed_compute(line, costs)}
            for column in COLUMNS:
                source = f"DeePa, Table {table}: {line['model']}, {line['layer']}, {_form(line)}, {column}"
                yield row(source, line[f"{column}_ms"], costs[column], "ms", notes.get(column, ""))
        yield _cheapest(table, lines, ours)


def _with_printed_compute(line: dict[str, str], costs: Costs) -> str:
    return f"with the printed compute {costs['transfer'] + costs['update'] + float(line['compute_ms']):.1f}"


def costs_ms(model: CostModel, layers: tuple[str, ...], degrees: dict[str, int]) -> Costs:
    """Costs of consecutive layers in one configuration, after a layer split by samples over all devices.

    Args:
        model: Prices.
        layers: Their names.
        degrees: Degrees by the papers' letters.

    Returns:
        The costs in the placement that moves least.
    """
    spaces, indices = model.all_configurations(), [model.graph.index[name] for name in layers]
    producer = _with(spaces[indices[0] - 1], {"n": len(model.cluster.devices), "c": 1, "h": 1, "w": 1})
    chosen = [_with(spaces[index], degrees) for index in indices]
    transfer = np.zeros(chosen[0].size)
    for index, consumer in zip(indices, chosen, strict=True):
        table = model.transfer_times.table(model.graph.producers[index][0], producer, consumer)
        transfer += np.diag(table) if producer.size == consumer.size else table[0]  # from layer 2 on, each in its place
        producer = consumer
    nodes = [model.node_costs(index, space) for index, space in zip(indices, chosen, strict=True)]
    least = int(transfer.argmin())
    cost = {
        "transfer": float(transfer[least]),
        "compute": float(sum(node.compute_s[least] for node in nodes)),
        "update": float(sum(node.gradient_sync_s[least] for node in nodes)),
    }
    return {name: 1e3 * seconds for name, seconds in (cost | {"total": sum(cost.values())}).items()}


def _with(space: ConfigSpace, degrees: dict[str, int]) -> ConfigSpace:
    """The placements of one choice of degrees."""
    wanted = [degrees[_LETTERS[dim]] for dim in space.output.dims]
    return space.only(np.flatnonzero((space.degrees == wanted).all(axis=1)))


def _form(line: dict[str, str]) -> str:
    return " ".join(f"{key}={line[key]}" for key in "nchw")


def _notes(table: str, line: dict[str, str], model: CostModel, layers: tuple[str, ...]) -> dict[str, str]:
    """By column, what explains a difference."""
    graph, profile = model.graph, model.profiles[0]
    named, workers = [graph.layers[graph.index[name]] for name in layers], int(line["workers"])
    rate = 3 * sum(layer.forward_flop() for layer in named) / workers / float(line["compute_ms"]) / 1e9
    notes = {
        "compute": f"forward and both gradients in the printed time need {rate:.1f} TFLOP/s of a GPU, "
        f"the peak is {profile.peak_flop_per_s / 1e12:.1f}",
        "update": "the paper's push of the server's own replica left out",
        "transfer": "the paper's transfer of the own part left out",
    }
    if table == "3":
        weights = 4 * sum(layer.parameter_count for layer in named)
        formula = 2 * workers * weights / BUS_BYTES_PER_S["k80"] * 1e3
        notes["compute"] += "; with Winograd's algorithm 2.25 times that"
        notes["update"] += f"; Table 2's formula gives {formula:.1f} for three layers, the printed value for two"
        notes["transfer"] = (
            f"the input is {4 * named[0].input_shapes[0].elements / 1e6:.0f} MB; the paper prints one value "
            "for every configuration, here what a part already holds is not moved"
        )
    zero = {column for column in notes if float(line[f"{column}_ms"]) == 0}
    return {column: note for column, note in notes.items() if column not in zero}


def _cheapest(table: str, lines: list[dict[str, str]], ours: list[Costs]) -> PaperRow:
    labelled = next(_form(line) for line in lines if line["label"] == "DeePa")
    best = _form(lines[min(range(len(lines)), key=lambda k: ours[k]["total"])])
    printed = _form(min(lines, key=lambda line: float(line["total_ms"])))
    why = f"the table's label DeePa stands on {labelled}; its own costs and the text make {printed} the best"
    return row(f"DeePa, Table {table}: cheapest configuration", printed, best, "config", why)
