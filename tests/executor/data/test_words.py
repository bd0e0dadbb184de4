"""Data as modules of (N, length) take them, and several inputs."""

import numpy as np
import pytest
import torch
from imported_networks import NETWORKS
from torch import nn

from executor.data.load import load_data
from executor.run.input_check import check_inputs
from executor.runtime.boxes import whole_box
from executor.runtime.run_options import RunOptions
from groundwork.errors import ConfigError
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


WORDS, VECTORS, VALUES = np.arange(24).reshape(4, 6) % 10, np.arange(20.0).reshape(4, 5), np.arange(4) % 8
TWO = {"inputs": WORDS, "inputs_2": VECTORS, "targets": VALUES}


def test_inputs_have_an_array_each(tmp_path):
    """The samples of both arrays come in one order, and random ones are the same in every epoch, each its own."""
    graph = imported(TwoInputs(), "4x6:int", "4x5")
    np.savez(tmp_path / "data.npz", **TWO)
    boxes = {name: whole_box(shape.sizes) for name, shape in graph.data.items()}
    given = {}
    for spec in (str(tmp_path / "data.npz"), "generated:4"):
        check_inputs(RunOptions(data=spec, device="cpu"), graph, 1)
        data = load_data(spec, graph, seed=1, dtype=torch.float64, device="cpu")
        rows = [
            torch.cat(
                [
                    *(data.inputs(step, box, name).flatten(1) for name, box in boxes.items()),
                    data.targets(step, 0, 4)[:, None],
                ],
                1,
            ).tolist()
            for step in range(2)
        ]
        assert sorted(rows[0]) == sorted(rows[1])
        given[spec] = rows[0]

    assert sorted(given[str(tmp_path / "data.npz")]) == sorted(np.hstack([WORDS, VECTORS, VALUES[:, None]]).tolist())
    assert {x == int(x) for row in given["generated:4"] for x in row[:6]} == {True}
    assert all(-1 <= x < 1 for row in given["generated:4"] for x in row[6:11])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"inputs_2": None}, "must hold the arrays inputs, inputs_2 and targets, got inputs, targets"),
        ({"inputs_2": VECTORS[:, :4]}, "samples must be 5 as it reads them, got 4 in inputs_2"),
        ({"inputs_2": VECTORS[:3]}, "targets must be as many as the 3 inputs_2, got 4"),
        ({"inputs_2": VECTORS.astype(int)}, "inputs_2 must be floating-point or uint8, got int64"),
        ({"inputs": WORDS + 1}, "inputs must be words of it, 0 to 9, got 1 to 10"),
        ({}, r"x.npy,.*y.npy has one input, it reads 2: data must be generated, or .* inputs, inputs_2 and targets"),
    ],
)
def test_arrays_of_several_inputs_that_do_not_fit_are_named(tmp_path, change, message):
    """One line names the array, before any process starts."""
    graph = imported(TwoInputs(), "4x6:int", "4x5")
    np.savez(tmp_path / "data.npz", **{name: each for name, each in (TWO | change).items() if each is not None})
    np.save(tmp_path / "x.npy", WORDS)
    np.save(tmp_path / "y.npy", VALUES)
    spec = str(tmp_path / "data.npz") if change else f"{tmp_path}/x.npy,{tmp_path}/y.npy"

    with pytest.raises(ConfigError, match=message):
        check_inputs(RunOptions(data=spec, device="cpu"), graph, 1)
