"""Operations of PyTorch that recorded computations may call: only those that compute, and change nothing else."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import torch

from groundwork.errors import ConfigError
from planner.operations.computation import POINTWISE, Step

_MAKERS = "arange zeros ones full linspace eye scalar_tensor"
_VIEWS = """
    view reshape _unsafe_view flatten unflatten squeeze unsqueeze view_as reshape_as permute transpose t swapaxes select
    slice narrow expand expand_as broadcast_to repeat tile repeat_interleave movedim detach alias clone contiguous to
    _to_copy type_as float lift_fresh lift_fresh_copy split chunk split_with_sizes unbind
"""
_ALONG = """
    softmax _softmax log_softmax _log_softmax cumsum cumprod sort argsort logcumsumexp flip softmin cummax cummin roll
"""
_REDUCTIONS = """
    mean sum amax amin max min var std norm linalg_vector_norm prod logsumexp all any argmax argmin median topk
"""
_REST = """
    __and__ __or__ __xor__ diff
    tril triu embedding matmul bmm mm mv dot outer einsum cat stack index index_select gather scatter_add conv1d conv2d
    conv3d conv_transpose1d conv_transpose2d conv_transpose3d max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d
    avg_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
    upsample_trilinear3d upsample_bicubic2d _upsample_nearest_exact1d _upsample_nearest_exact2d linalg_qr layer_norm
    group_norm instance_norm rms_norm scaled_dot_product_attention batch_norm linalg_inv linalg_norm cdist
    max_pool2d_with_indices max_pool3d_with_indices pixel_shuffle pixel_unshuffle channel_shuffle
"""
_KNOWN = POINTWISE.union(" ".join((_MAKERS, _VIEWS, _ALONG, _REDUCTIONS, _REST)).split())
_TYPES = {"int64": torch.int64, "int32": torch.int32, "bool": torch.bool, "uint8": torch.uint8, "int": torch.int32}
_BOUNDS = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


@lru_cache(maxsize=512)
def function_of(name: str) -> Callable[..., Any]:
    """Return an operation of PyTorch's own library.

    Raises:
        ConfigError: It is none that a recorded computation may call.
    """
    packet = getattr(torch.ops.aten, name, None) if name in _KNOWN or _is_pointwise(name) else None
    if packet is None:
        raise ConfigError(f"operation {name} cannot be run: it is none that the executor knows")
    function: Callable[..., Any] = packet
    return function


def channels_apart(name: str) -> bool:
    """Return whether an operation computes every channel for itself: pooling and resampling."""
    return "pool" in name or "upsample" in name


def check_call(name: str) -> None:
    """Refuse the name of an operation that recorded computations may not call.

    Raises:
        ConfigError: It is unknown.
    """
    function_of(name)


def _is_pointwise(name: str) -> bool:
    """Return whether PyTorch says that an operation works element by element, without chance and not in place."""
    packet = getattr(torch.ops.aten, name, None) if name.isidentifier() and name[-1] != "_" != name[0] else None
    if packet is None or not hasattr(packet, "overloads"):
        return False
    tags = [getattr(packet, each).tags for each in packet.overloads()]
    chance = torch.Tag.nondeterministic_seeded
    return any(torch.Tag.pointwise in row for row in tags) and not any(chance in row for row in tags)


def keywords_of(arguments: Mapping[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    """Return recorded arguments as PyTorch takes them; floating-point types become the network's."""
    rows = {name: _value(each) for name, each in arguments.items()}
    if "dtype" in rows:
        rows["dtype"] = _TYPES.get(str(rows["dtype"]), dtype)
    return rows


def numbers_of_step(step: Step, name: str) -> tuple[int, ...]:
    """Return an argument of a step that lists whole numbers.

    Raises:
        ConfigError: It is anything else.
    """
    given = step.argument(name)
    if not isinstance(given, tuple) or not all(isinstance(each, int) for each in given):
        raise ConfigError(f"{name} of a step must be a list of whole numbers, got {str(given)[:80]}")
    return given


def _value(given: Any) -> Any:
    if isinstance(given, tuple):
        return [_value(each) for each in given]
    return _BOUNDS.get(given, given) if isinstance(given, str) else given
