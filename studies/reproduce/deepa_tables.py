"""DeePa's Tables 2 and 3: costs of one layer, or of three, in five configurations.

The paper's form, transfer and update as total bytes over one bandwidth, is our cost model on a bus with a central
parameter server.  The paper counts all p replicas, or all p readers of one tensor; here the one that holds the server
or the part itself moves nothing, so our costs are (p - 1) / p of the paper's where the rest is equal.

Source: Jia et al. (anonymous), "Exploring the hidden dimension in accelerating convolutional neural networks",
ICLR 2018 submission, Tables 2 and 3.
"""

from collections.abc import Iterator

import numpy as np

from planner.cost.cost_model import CostModel
from planner.layouts.configurations import ConfigSpace
from studies.reproduce.paper_clusters import BUS_BYTES_PER_S
from studies.reproduce.priced_cases import PricedCase, PricedCases
from studies.reproduce.rows import PaperRow, row, stored

_TABLES = {"2": ("alexnet", ("fc1",)), "3": ("vgg16", ("conv5_1", "conv5_2", "conv5_3"))}
COLUMNS = ("transfer", "compute", "update", "total")
_LETTERS = {"sample": "n", "channel": "c", "height": "h", "width": "w"}
Costs = dict[str, float]
"""Milliseconds by column."""


def table_rows() -> Iterator[PaperRow]:
    """Yield a row for every cell of both tables, then one for the configuration that each calls the best."""
    results, rows = PricedCases(), stored("deepa_tables")
    for table, (network, layers) in _TABLES.items():
        model = results.model(PricedCase(network, 512, "bus k80", "ps"))
        lines = [line for line in rows if line["table"] == table]
        ours = [costs_ms(model, layers, {key: int(line[key]) for key in "nchw"}) for line in lines]
        for line, costs in zip(lines, ours, strict=True):
            notes = _notes(table, line, model, layers) | {"total": _with_printed_compute(line, costs)}
            for column in COLUMNS:
                source = f"DeePa, Table {table}: {line['model']}, {line['layer']}, {_form(line)}, {column}"
                yield row(source, line[f"{column}_ms"], costs[column], "ms", notes.get(column, ""))
        yield _cheapest(table, lines, ours)


def _with_printed_compute(line: dict[str, str], costs: Costs) -> str:
    """Return a note with our total if the computation took the printed time."""
    return f"with the printed compute {costs['transfer'] + costs['update'] + float(line['compute_ms']):.1f}"


def costs_ms(model: CostModel, layers: tuple[str, ...], degrees: dict[str, int]) -> Costs:
    """Return the costs of consecutive layers in one configuration, after a layer split by samples over all devices.

    Args:
        model: Prices of the network on the cluster.
        layers: Names of the layers.
        degrees: Degrees by the papers' letters: n samples, c channels, h height, w width.

    Returns:
        Milliseconds by column, in the placement that moves the fewest bytes.

    Source: Jia et al., "Exploring the hidden dimension ...", Eq. 1 and Tables 2 and 3.
    """
    spaces, indices = model.all_configurations(), [model.graph.index[name] for name in layers]
    producer = _with(spaces[indices[0] - 1], {"n": len(model.cluster.devices), "c": 1, "h": 1, "w": 1})
    chosen = [_with(spaces[index], degrees) for index in indices]
    transfer = np.zeros(chosen[0].size)
    for index, consumer in zip(indices, chosen, strict=True):
        table = model.transfer_times.table(model.graph.producers[index][0], producer, consumer)
        transfer += (
            np.diag(table) if producer.size == consumer.size else table[0]
        )  # from layer 2 on, each placement follows its own
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
    """Return the placements of one choice of degrees."""
    wanted = [degrees[_LETTERS[dim]] for dim in space.output.dims]
    return space.only(np.flatnonzero((space.degrees == wanted).all(axis=1)))


def _form(line: dict[str, str]) -> str:
    """Return the configuration of a table's row in words, such as ``n=16 c=1 h=1 w=1``."""
    return " ".join(f"{key}={line[key]}" for key in "nchw")


def _notes(table: str, line: dict[str, str], model: CostModel, layers: tuple[str, ...]) -> dict[str, str]:
    """Return notes that explain differences, by column."""
    graph, profile = model.graph, model.profiles[0]
    named, workers = [graph.layers[graph.index[name]] for name in layers], int(line["workers"])
    rate = 3 * sum(layer.forward_flop() for layer in named) / workers / float(line["compute_ms"]) / 1e9
    notes = {
        "compute": f"forward pass and both gradients in the printed time need {rate:.1f} TFLOP/s of a GPU, whose peak "
        f"is {profile.peak_flop_per_s / 1e12:.1f}",
        "update": "without the push of the server's own replica, which the paper counts",
        "transfer": "without the transfer of a device's own part, which the paper counts",
    }
    if table == "3":
        weights = 4 * sum(layer.parameter_count for layer in named)
        formula = 2 * workers * weights / BUS_BYTES_PER_S["k80"] * 1e3
        notes["compute"] += "; Winograd's algorithm would give 2.25 times that"
        notes["update"] += f"; Table 2's formula gives {formula:.1f} for three layers, and the printed value for two"
        notes["transfer"] = (
            f"the input is {4 * named[0].input_shapes[0].elements / 1e6:.0f} MB; the paper prints one value "
            "for every configuration, but regions that a device already holds are not moved here"
        )
    zero = {column for column in notes if float(line[f"{column}_ms"]) == 0}
    return {column: note for column, note in notes.items() if column not in zero}


def _cheapest(table: str, lines: list[dict[str, str]], ours: list[Costs]) -> PaperRow:
    """Return the row that compares the cheapest configurations of the paper and of ours."""
    labelled = next(_form(line) for line in lines if line["label"] == "DeePa")
    best = _form(lines[min(range(len(lines)), key=lambda k: ours[k]["total"])])
    printed = _form(min(lines, key=lambda line: float(line["total_ms"])))
    note = f"the table labels {labelled} as DeePa, but by its own costs and the text {printed} is the best"
    return row(f"DeePa, Table {table}: cheapest configuration", printed, best, "config", note)
