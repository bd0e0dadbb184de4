"""Training goes on from plain PyTorch to a divided run and back, by the module's own ``state_dict``."""

import importlib.util
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from executor.checkpoints.module_state_save import _start
from executor.data.load import load_data
from executor.run.plan_run import run_plan
from executor.runtime.boxes import whole_box
from executor.runtime.module_state import check_module_state, read_module_state, with_tied
from executor.runtime.optimizer_spec import OptimizerSpec
from executor.runtime.run_options import RunOptions
from groundwork.errors import ConfigError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from planner.importing.graph_of import imported_graph
from planner.model_files.model_text import model_text
from planner.models.registry import load_model
from planner.plan.make_plan import make_plan
from planner.plan.plan_file import save_plan
from planner.tracing.exported import trace_of
from planner.tracing.inputs import input_specs

pytestmark = [pytest.mark.timeout(200), pytest.mark.usefixtures("warm_ranks")]
BATCH, SEED, RATE = 8, 3, 0.1


class Normed(nn.Module):
    """A network with running statistics, a buffer, a table of positions, two layers of one weight, one in sections."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.bn = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8, eps=1e-3, momentum=0.3)
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 4)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
        self.second.weight = self.first.weight
        self.packed = nn.Linear(8, 24)
        self.places = nn.Parameter(torch.randn(1, 16, 8))
        self.register_buffer("order", torch.randperm(16))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.bn(self.stem(x))).flatten(2).transpose(1, 2)
        x = self.second(torch.tanh(self.first(x)))
        query, key, value = self.packed(x).chunk(3, -1)
        x = torch.sigmoid(query) * key + value
        return self.head(self.norm(x[:, self.order] + self.places).mean(1))


def planned(tmp_path, strategy: str) -> str:
    """Import the network, and plan it for two hosts in float64."""
    graph = imported_graph(trace_of(Normed(), input_specs([f"{BATCH}x3x4x4"])), name="net").graph
    (tmp_path / "net.yaml").write_text(model_text(graph))
    graph = load_model(str(tmp_path / "net.yaml"), batch=BATCH, element_bytes=8)
    cluster = "lab-4:nodes=2"
    plan = make_plan(graph, load_cluster(cluster), strategy=strategy, batch_norm="reduced")
    save_plan(replace(plan, request=replace(plan.request, cluster=cluster)), tmp_path / "plan.json")
    return str(tmp_path / "plan.json")


def trained(module: nn.Module, graph, first: int, last: int) -> None:
    """Train a module in plain PyTorch on the generated data of some steps."""
    data = load_data("generated", graph, seed=SEED, dtype=torch.float64, device="cpu")
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    for number in range(first, last):
        inputs = data.inputs(number, whole_box(graph.layers[0].input_shapes[0].sizes))
        loss = functional.cross_entropy(module(inputs), data.targets(number, 0, BATCH))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@pytest.mark.parametrize("strategy", ["model"])
def test_training_goes_on_from_pytorch_and_back(tmp_path, strategy):
    """A state of PyTorch, two divided steps, and two more in PyTorch are four steps in PyTorch, to 1e-9."""
    torch.manual_seed(SEED)
    plain, back = Normed().double(), Normed().double()
    torch.save(plain.state_dict(), tmp_path / "start.pt")
    chosen = RunOptions(
        plan=planned(tmp_path, strategy),
        steps=2,
        device="cpu",
        seed=SEED,
        init=str(tmp_path / "start.pt"),
        save=str(tmp_path / "end.pt"),
        optimizer=OptimizerSpec(learning_rate=RATE, momentum=0.0),
    )
    graph = run_plan(chosen).program.graph
    back.load_state_dict(torch.load(tmp_path / "end.pt", weights_only=True))
    trained(back, graph, 2, 4)
    trained(plain, graph, 0, 4)

    expected = plain.state_dict()
    for key, value in back.state_dict().items():
        torch.testing.assert_close(value, expected[key], rtol=1e-9, atol=1e-11, msg=key)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("places"), r"must hold places"),
        (lambda state: state.update({"head.bias": torch.zeros(5)}), r"head.bias must have sizes \[4\], got \[5\]"),
        (lambda state: state.update({"second.weight": torch.zeros(8, 8)}), "first.weight and second.weight must be eq"),
        (lambda state: state.update(step=3), r"dense tensors only, got int for 'step'"),
    ],
)
def test_states_that_do_not_fit_are_named(tmp_path, change, message):
    """The refusal names the key, before any process starts."""
    state = Normed().state_dict()
    change(state)
    torch.save(state, tmp_path / "start.pt")
    chosen = RunOptions(plan=planned(tmp_path, "data"), steps=1, device="cpu", init=str(tmp_path / "start.pt"))

    with pytest.raises(ConfigError, match=message):
        run_plan(chosen)


@pytest.mark.parametrize("missing", ["first.weight", "second.weight"])
def test_a_tied_parameter_needs_one_of_its_keys(tmp_path, missing):
    """Files that keep no storages in common have one key of it; whichever that is, it is the parameter."""
    state = Normed().state_dict()
    torch.save({key: each for key, each in state.items() if key != missing}, tmp_path / "start.pt")
    graph = imported_graph(trace_of(Normed(), input_specs([f"{BATCH}x3x4x4"])), name="net").graph
    check_module_state(tmp_path / "start.pt", graph)

    assert torch.equal(
        with_tied(read_module_state(tmp_path / "start.pt"), graph)["first.weight"], state["first.weight"]
    )


def test_tensors_of_one_storage_that_differ_stay_apart(tmp_path):
    """A square matrix and its transpose have one place in memory and one shape."""
    one = torch.arange(9.0).reshape(3, 3)
    torch.save({"one": one, "same": one, "other": one.t()}, tmp_path / "start.pt")
    state = _start(str(tmp_path / "start.pt"))

    assert state["one"] is state["same"]
    assert torch.equal(state["other"], one.t())


def test_safetensors_are_read_where_their_library_is(tmp_path):
    """The tensors are those that were saved; without the library, or for another file, the refusal says so."""
    path = tmp_path / "start.safetensors"
    path.write_bytes(b"no tensors at all")
    if importlib.util.find_spec("safetensors") is None:
        with pytest.raises(ConfigError, match="needs the package safetensors, which is not installed: pip install"):
            read_module_state(path)
        return
    with pytest.raises(ConfigError, match="must be a safetensors file"):
        read_module_state(path)
    from safetensors.torch import save_file

    state = nn.Linear(3, 2).state_dict()
    save_file(state, path)
    for key, each in read_module_state(path).items():
        assert torch.equal(each, state[key])


def test_files_that_run_code_and_missing_states_are_refused(tmp_path):
    """A pickle of code is no state; a network that reads a buffer needs one."""
    plan = planned(tmp_path, "data")
    torch.save({"a": nn.Linear(2, 2)}, tmp_path / "code.pt")

    with pytest.raises(ConfigError, match="a state_dict that torch"):
        run_plan(RunOptions(plan=plan, steps=1, device="cpu", init=str(tmp_path / "code.pt")))
    with pytest.raises(ConfigError, match="reads buffer order of the module: init must give its state_dict"):
        run_plan(RunOptions(plan=plan, steps=1, device="cpu"))
