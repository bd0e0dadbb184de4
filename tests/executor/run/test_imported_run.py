"""Imported models in the executor: equal to the module itself, or refused by the name of the operation."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn
from undivided import first_state

from executor.checks.program_check import check_program
from executor.data.load import load_data
from executor.families.configuration import PublishedFields
from executor.families.whisper import whisper
from executor.run.plan_run import run_plan
from executor.runtime.boxes import whole_box
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.run_options import RunOptions
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.cost.cost_model import CostModel
from planner.importing.graph_of import imported_graph
from planner.lowering.lower_strategy import lower
from planner.model_files.model_text import model_text
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import save_plan
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

pytestmark = [pytest.mark.timeout(200), pytest.mark.usefixtures("warm_ranks")]
STEPS, BATCH, SEED = 3, 8, 5
LEARNING_RATE, MOMENTUM = 0.05, 0.9


class Net(nn.Module):
    """All kinds that the executor computes but normalisation over the batch, which parts compute each for itself."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.deep = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.pool, self.head = nn.MaxPool2d(2), nn.Sequential(nn.Linear(16 * 4 * 4, 12), nn.Tanh(), nn.Linear(12, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        x = torch.cat([x, torch.relu(self.deep(x) + x)], 1)
        return self.head(self.pool(x).flatten(1))


def planned(tmp_path, module: nn.Module, strategy: str, *, sizes=(f"{BATCH}x3x8x8",), loss="softmax") -> str:
    """Import a module, and plan it for two hosts in float64."""
    graph = imported_graph(trace_of(module, input_specs(sizes)), name="net", loss=loss).graph
    (tmp_path / "net.yaml").write_text(model_text(graph))
    graph = load_model(str(tmp_path / "net.yaml"), batch=BATCH, element_bytes=8)
    plan = make_plan(graph, load_cluster("lab-4:nodes=2"), strategy=strategy)
    save_plan(replace(plan, request=replace(plan.request, cluster="lab-4:nodes=2")), tmp_path / "plan.json")
    return str(tmp_path / "plan.json")


def net(frozen: tuple[str, ...]) -> Net:
    """The network with some parameters that are not trained."""
    module = Net()
    for name in frozen:
        module.get_parameter(name).requires_grad_(False)
    return module


@pytest.mark.parametrize(
    ("strategy", "frozen"),
    [("model", ("stem.bias", "deep.weight", "head.0.weight")), ("spatial", ())],
)
def test_losses_are_those_of_the_module(tmp_path, strategy, frozen):
    """Two processes train as the module does in plain PyTorch from the same parameters, frozen ones too, to 1e-9."""
    run = run_plan(
        RunOptions(
            plan=planned(tmp_path, net(frozen), strategy),
            steps=STEPS,
            device="cpu",
            data="generated",
            seed=SEED,
            optimizer=OptimizerSpec(learning_rate=LEARNING_RATE, momentum=MOMENTUM),
        )
    )
    graph, module = run.program.graph, net(frozen).double()
    module.load_state_dict(first_state(graph, SEED))
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    data = load_data("generated", graph, seed=SEED, dtype=torch.float64, device="cpu")
    shape, losses = graph.layers[0].input_shapes[0].sizes, []
    for number in range(STEPS):
        inputs, targets = data.inputs(number, whole_box(shape)), data.targets(number, 0, BATCH)
        loss = nn.functional.cross_entropy(module(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    assert run.measurement.loss == pytest.approx(losses, rel=1e-9)


class Twins(nn.Module):
    """Two inputs of one shape that are told apart, and one between them that nothing reads."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4 * 8 * 8, 4)

    def forward(self, x: torch.Tensor, unread: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        both = torch.relu(self.one(x - 2 * y)) * torch.tanh(self.two(y))
        return self.head(both.flatten(1))


WHISPER = {
    "vocab_size": 20,
    "num_mel_bins": 4,
    "max_source_positions": 8,
    "max_target_positions": 6,
    "d_model": 16,
} | {
    f"{side}_{field}": value
    for side in ("encoder", "decoder")
    for field, value in (("layers", 1), ("attention_heads", 4), ("ffn_dim", 24))
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Several:
    """A module of several inputs: those of a batch, and how it is trained."""

    make: Callable[[], nn.Module]
    sizes: tuple[str, ...]
    loss: str
    data: dict[str, tuple[int, ...]]
    """Shapes of the inputs that are read, by the names of the graph."""
    call: Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]
    classes: int
    positions: tuple[int, ...] = ()


SEVERAL = {
    "twins": Several(
        make=Twins,
        sizes=(f"{BATCH}x3x8x8", f"{BATCH}x5", f"{BATCH}x3x8x8"),
        loss="softmax",
        data={"input": (BATCH, 3, 8, 8), "input:2": (BATCH, 3, 8, 8)},
        call=lambda module, x, y: module(x, None, y),
        classes=4,
    ),
    "whisper": Several(
        make=lambda: whisper(PublishedFields("config.json", WHISPER)),
        sizes=(f"{BATCH}x4x16", f"{BATCH}x6:int"),
        loss="softmax_per_position",
        data={"input": (BATCH, 4, 16), "input:2": (BATCH, 1, 6)},
        call=lambda module, x, y: module(x, y.squeeze(1).long()).movedim(-1, 1),
        classes=20,
        positions=(6,),
    ),
}


def written_arrays(path, several: Several) -> dict[str, np.ndarray]:
    """The arrays of one batch, also in a file: words as modules take them."""
    rng = np.random.default_rng(SEED)
    x, y = several.data.values()
    words = several.positions != ()
    arrays = {
        "inputs": rng.normal(size=x),
        "inputs_2": rng.integers(0, several.classes, (y[0], y[2])) if words else rng.normal(size=y),
        "targets": rng.integers(0, several.classes, (BATCH, *several.positions)),
    }
    np.savez(path, **arrays)
    return arrays


@pytest.mark.parametrize(
    ("name", "strategy", "data"),
    [
        ("twins", "spatial", "generated"),
        ("whisper", "model", "npz"),
    ],
)
def test_models_of_several_inputs_are_fed_each_by_its_name(tmp_path, name, strategy, data):
    """Two processes train as the module does in plain PyTorch, on random data and on arrays of a file, to 1e-9."""
    several = SEVERAL[name]
    path = planned(tmp_path, several.make(), strategy, sizes=several.sizes, loss=several.loss)
    arrays = written_arrays(tmp_path / "data.npz", several)
    spec = str(tmp_path / "data.npz") if data == "npz" else data
    sgd = OptimizerSpec(learning_rate=LEARNING_RATE, momentum=MOMENTUM)
    run = run_plan(RunOptions(plan=path, steps=STEPS, device="cpu", data=spec, seed=SEED, optimizer=sgd))
    graph, module = run.program.graph, several.make().double()
    assert {key: shape.sizes for key, shape in graph.data.items()} == several.data

    module.load_state_dict(first_state(graph, SEED), strict=False)
    optimizer = torch.optim.SGD(module.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM)
    generated, losses = load_data("generated", graph, seed=SEED, dtype=torch.float64, device="cpu"), []
    for number in range(STEPS):
        if data == "npz":  # one batch is the whole file, so its order does not matter
            x, y, targets = map(torch.from_numpy, arrays.values())
            y = y.reshape(several.data["input:2"])
        else:
            x, y = (generated.inputs(number, whole_box(sizes), each) for each, sizes in several.data.items())
            targets = generated.targets(number, 0, BATCH)
            assert name == "whisper" or (x - y).abs().mean() > 0.5  # of uniform values in [-1, 1) it is 2 / 3
        loss = nn.functional.cross_entropy(several.call(module, x, y), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())

    assert run.measurement.loss == pytest.approx(losses, rel=1e-9)


class Recurrent(nn.Module):
    """A recurrent layer over the channels of an image, which the executor cannot run."""

    def __init__(self) -> None:
        super().__init__()
        self.steps, self.head = nn.LSTM(64, 8, batch_first=True), nn.Linear(24, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.steps(x.flatten(2))[0].flatten(1))


def test_kinds_that_are_planned_only_are_named(tmp_path):
    """The refusal names layer and operation, before any process starts."""
    path = planned(tmp_path, Recurrent(), "data")

    with pytest.raises(ConfigError, match=r"layer steps of .* is planned only and cannot be run: recurrence"):
        run_plan(RunOptions(plan=path, steps=1, device="cpu"))


SMALL = ["llama-1b:layers=2,hidden=256,heads=4,kv_heads=2,ffn=512,sequence=64,tied=0", "gpt2:layers=2,hidden=128"]


@pytest.mark.parametrize("name", ["swin-t", *SMALL])
def test_models_of_the_catalogue_can_be_run(name):
    """Every layer of the transformers says what it computes, and does so for another batch than that of the file."""
    graph = load_model(name, batch=4)
    strategy = named_strategy("data", graph, 2)

    check_program(lower(CostModel(graph, load_cluster("lab-4:nodes=2")), spaces_of(graph, strategy, 2)), 2)


class Dropped(nn.Module):
    """A model that drops what one of its trained layers makes."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.kept, self.other = nn.Linear(6, 3), nn.Linear(6, features)

    def forward(self, x):
        self.other(x)
        return self.kept(x)


@pytest.mark.parametrize("features", [3, 5])
def test_losses_of_other_sizes_have_no_target(features):
    trace = trace_of(Dropped(features), input_specs(["2x6"]))
    graph = imported_graph(trace, name="dropped", loss="mean_squared_error").graph
    program = lower(CostModel(graph, load_cluster("lab-4")), spaces_of(graph, named_strategy("data", graph, 1), 1))
    if features == 3:
        check_program(program, 1)
        return
    with pytest.raises(ConfigError, match=r"with sizes \[2, 3\], to be run.*got mean_squared_error with \[2, 5\]"):
        check_program(program, 1)
