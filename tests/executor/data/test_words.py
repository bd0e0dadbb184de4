"""Data as modules of (N, length) take them, and models whose data no data set has."""

import numpy as np
import pytest
import torch
from imported_networks import NETWORKS
from torch import nn

from executor.data.load import load_data
from executor.run.input_check import check_inputs
from executor.runtime.boxes import whole_box
from executor.runtime.run_options import RunOptions
from hwprofiles import ConfigError
from planner.importing.graph_of import imported_graph
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs


class Signal(nn.Module):
    """A convolution over signals of one channel, which come without an axis of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv1d(1, 4, 3, padding=1), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.conv(x.unsqueeze(1))).mean(2))


class TwoInputs(nn.Module):
    """Words, and a vector of another size."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(10, 8), nn.Linear(5, 8)

    def forward(self, words: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.table(words).mean(1) + self.head(x)


def imported(module, *sizes, loss="softmax"):
    """The graph of a module."""
    return imported_graph(trace_of(module, input_specs(sizes)), name="it", loss=loss).graph


@pytest.mark.parametrize("kind", ["words", "signals"])
def test_arrays_of_samples_and_positions_are_what_modules_take(tmp_path, kind):
    """Each sample of the file comes once an epoch, with its target: every element is the file's."""
    rng = np.random.default_rng(3)
    if kind == "words":
        graph = imported(NETWORKS["bert-tiny"].make(), "8x8:int", loss="softmax_per_position")
        inputs, targets = rng.integers(0, 24, (8, 8)), rng.integers(0, 24, (8, 8))
    else:
        graph = imported(Signal(), "8x12")
        inputs, targets = rng.normal(size=(8, 12)), rng.integers(0, 3, 8)
    np.savez(tmp_path / "data.npz", inputs=inputs, targets=targets)
    check_inputs(RunOptions(data=str(tmp_path / "data.npz"), device="cpu"), graph, 1)
    data = load_data(str(tmp_path / "data.npz"), graph, seed=1, dtype=torch.float64, device="cpu")
    given = data.inputs(0, whole_box(graph.layers[0].input_shapes[0].sizes)).reshape(8, -1).numpy()
    labels = data.targets(0, 0, 8).numpy()

    found = {tuple(x): y.tolist() for x, y in zip(given.tolist(), labels, strict=True)}
    assert found == {tuple(x): y.tolist() for x, y in zip(inputs.tolist(), targets, strict=True)}


def test_inputs_of_several_shapes_are_refused():
    """A data set has one input: one line names the sizes."""
    graph = imported(TwoInputs(), "4x6:int", "4x5")
    with pytest.raises(ConfigError, match="must read data of one shape to be run, a sample of it has 1x6 and 5"):
        check_inputs(RunOptions(device="cpu"), graph, 1)
