"""Traffic of updates, against the calls that PyTorch's optimizers dispatch and closed forms of published frameworks."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from planner.cost.software import software_of
from planner.cost.update_traffic import gradient_pass_bytes, update_bytes

SIZE = 4096


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
    assert update_bytes(software_of("pytorch"), optimizer, 4, 4, scaled=False) == accessed.moved / (2 * SIZE)


@pytest.mark.parametrize(
    ("software", "optimizer", "sizes", "expected"),
    [
        ("ideal", "momentum", (4, 4), 20),  # w, g, v and w, v
        ("ideal", "momentum", (2, 2), 16 + 2 + 2),  # and the copy in sixteen bits
        ("ideal", "adam", (4, 4), 28),
        ("ideal", "adam", (8, 8), 56),
        ("ideal", "adam", (2, 4), 24 + 4 + 2),
        ("nanotron", "adam", (2, 4), 28 + 6),  # the master weights are read again for the copy
        ("megatron-2021", "adam", (2, 2), 6 + 28 + 6),  # gradients are converted
        ("pytorch:update=0", "adam", (2, 2), 28),
        ("pytorch", "adam", (2, 2), 6 + 80 + 6),
    ],
)
def test_bytes_of_an_update(software, optimizer, sizes, expected):
    assert update_bytes(software_of(software), optimizer, *sizes, scaled=False) == expected


def test_scaled_losses_and_clipped_gradients_take_passes():
    software = software_of("megatron-2021")
    plain, scaled = (update_bytes(software, "adam", 2, 2, scaled=each) for each in (False, True))
    assert scaled - plain == 8
    assert gradient_pass_bytes(software, 2) == 2 * (1 + 1)  # the norm, and zeros
    assert gradient_pass_bytes(software_of("nanotron"), 4) == 4 * (3 + 1)
    assert gradient_pass_bytes(software_of("pytorch"), 4) == 0
