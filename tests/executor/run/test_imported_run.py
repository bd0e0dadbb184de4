"""Imported models in the executor: equal to the module itself, or refused by the name of the operation."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from undivided import first_parameters

from executor.checks.program_check import check_program
from executor.data.load import load_data
from executor.run.plan_run import run_plan
from executor.runtime.boxes import whole_box
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.run_options import RunOptions
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.errors import ConfigError
from planner.cost.cost_model import CostModel
from planner.importing.graph_of import imported_graph
from planner.lowering.lower_strategy import lower
from planner.model_files.model_text import model_text
from planner.models.registry import load_model
from planner.parallel.strategies import named_strategy, spaces_of
from planner.plan.plan_file import save_plan
from planner.plan.planning import make_plan
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


def planned(tmp_path, module: nn.Module, strategy: str) -> str:
    """Import a module, and plan it for two hosts in float64."""
    graph = imported_graph(trace_of(module, input_specs([f"{BATCH}x3x8x8"])), name="net").graph
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
    [("data", ("stem.weight", "stem.bias", "deep.bias")), ("model", ("deep.weight", "head.0.weight")), ("spatial", ())],
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
    keys = {(layer.name, name): key for layer in graph.layers for name, key in layer.keys}
    given = first_parameters(graph, SEED)
    module.load_state_dict({keys[place]: tensor for place, tensor in given.items()})
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


@pytest.mark.parametrize("name", ["bert-base", "gpt2", "llama-1b", "swin-t"])
def test_models_of_the_catalogue_can_be_run(name):
    """Every layer of the transformers says what it computes, and does so for another batch than that of the file."""
    graph = load_model(name, batch=4)
    strategy = named_strategy("data", graph, 2)

    check_program(lower(CostModel(graph, load_cluster("lab-4:nodes=2")), spaces_of(graph, strategy, 2)), 2)
