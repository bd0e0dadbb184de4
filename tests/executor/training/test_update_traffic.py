"""Traffic of updates, against the calls that PyTorch's optimizers dispatch and closed forms of published frameworks."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from planner.cost.software import software_of
from planner.cost.update_traffic import gradient_pass_bytes, update_bytes
from planner.graph.type_roles import DataTypes

SIZE = 4096
SINGLE, HALF = DataTypes.of("float32"), DataTypes.of("bfloat16")


class _Accessed(TorchDispatchMode):
    """Bytes of the tensors that calls on many of them read and write; what they write in place counts twice."""

    def __init__(self):
        super().__init__()
        self.moved = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.removeprefix("aten::")
        if name.startswith("_foreach"):
            lists = [each for each in args if isinstance(each, list | tuple)]
            read = {id(each): each for row in lists for each in row if isinstance(each, torch.Tensor)}
            written = lists[0] if name.endswith("_") else result
            self.moved += sum(each.numel() * each.element_size() for each in [*read.values(), *written] if each.ndim)
        return result


@pytest.mark.parametrize(
    ("optimizer", "made"),
    [
        ("adam", lambda rows: torch.optim.AdamW(rows, foreach=True)),
        ("momentum", lambda rows: torch.optim.SGD(rows, lr=0.1, momentum=0.9, foreach=True)),
        ("sgd", lambda rows: torch.optim.SGD(rows, lr=0.1, foreach=True)),
    ],
)
def test_an_update_by_single_operations_moves_what_pytorch_does(optimizer, made):
    rows = [torch.randn(SIZE, requires_grad=True) for _ in range(2)]
    trained = made(rows)
    for row in rows:
        row.grad = torch.randn(SIZE)
    trained.step()  # which makes the state
    with _Accessed() as accessed:
        trained.step()
    assert update_bytes(software_of("pytorch"), optimizer, DataTypes.of("float32")) == accessed.moved / (2 * SIZE)


@pytest.mark.parametrize(
    ("software", "optimizer", "types", "expected"),
    [
        ("ideal", "momentum", SINGLE, 20),  # w, g, v and w, v
        ("ideal", "momentum", HALF, 16 + 2 + 2),  # and the copy in sixteen bits
        ("ideal", "adam", SINGLE, 28),
        ("ideal", "adam", DataTypes.of("float64"), 56),
        ("ideal", "adam", DataTypes.of("bfloat16", gradient="float32"), 24 + 4 + 2),
        (
            "nanotron",
            "adam",
            DataTypes.of("bfloat16", gradient="float32"),
            28 + 6,
        ),  # the master weights are read again for the copy
        ("megatron-2021", "adam", HALF, 6 + 28 + 6),  # gradients are converted
        ("pytorch:update=0", "adam", HALF, 28),
        ("pytorch", "adam", HALF, 6 + 80 + 6),
        ("pytorch", "adam", DataTypes.of("bfloat16", master="none"), 2 * 20),
        ("ideal", "adam", DataTypes.of("bfloat16", master="none"), 2 * 7),
        ("ideal", "adam", DataTypes.of("bfloat16", state="bfloat16"), 4 * 2 + 2 * 4 + 2 + 2),
        ("ideal", "adam", DataTypes.of("bfloat16", parameter="float32", gradient="float32"), 4 * 7 + 6),  # and a cast
    ],
)
def test_bytes_of_an_update(software, optimizer, types, expected):
    assert update_bytes(software_of(software), optimizer, types) == expected


def test_scaled_losses_and_clipped_gradients_take_passes():
    software = software_of("megatron-2021")
    plain, scaled = (update_bytes(software, "adam", DataTypes.of(each)) for each in ("bfloat16", "float16"))
    assert scaled - plain == 8
    assert gradient_pass_bytes(software, 2) == 2 * (1 + 1)  # the norm, and zeros
    assert gradient_pass_bytes(software_of("nanotron"), 4) == 4 * (3 + 1)
    assert gradient_pass_bytes(software_of("pytorch"), 4) == 0
