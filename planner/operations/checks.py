"""Checks of the fields and inputs of operations."""

import math
from collections.abc import Sequence

from groundwork.errors import ConfigError
from planner.graph.shapes import Shape

ACTIVATIONS = ("relu", "leaky_relu", "sigmoid", "tanh")
POSITIONS = ((), ("length",), ("height", "width"), ("depth", "height", "width"))
MAX_RANK = len(POSITIONS) - 1


def check_int(field: str, value: int, low: int) -> None:
    """Refuse ``value`` unless it is an integer of at least ``low``.

    Raises:
        ConfigError: It is not; the message names ``field``.
    """
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ConfigError(f"{field} must be an integer >= {low}, got {value!r}")


def check_activation(field: str, value: str | None) -> None:
    """Refuse names of unknown activations; None is allowed.

    Raises:
        ConfigError: The name is unknown; the message names ``field``.
    """
    if value is not None and value not in ACTIVATIONS:
        raise ConfigError(f"{field} must be None or one of {', '.join(ACTIVATIONS)}, got {value!r}")


def check_norm(prefix: str, eps: float, momentum: float) -> None:
    """Refuse constants that no batch normalisation has.

    Raises:
        ConfigError: ``eps`` is negative or not finite, or ``momentum`` not from 0 to 1; the message names the field.
    """
    if not 0 <= eps < math.inf:
        raise ConfigError(f"{prefix}eps must be finite and >= 0, got {eps!r}")
    if not 0 <= momentum <= 1:
        raise ConfigError(f"{prefix}momentum must be from 0 to 1, got {momentum!r}")


def check_window(
    kind: str, kernel: Sequence[int], stride: Sequence[int], pad: Sequence[int], dilation: Sequence[int]
) -> None:
    """Refuse sliding windows of other than 1 to 3 dimensions, or with sizes out of range.

    Raises:
        ConfigError: A rule is broken; the message names ``kind`` and the field.
    """
    if not 1 <= len(kernel) <= MAX_RANK:
        raise ConfigError(f"{kind}.kernel must have 1 to {MAX_RANK} sizes, got {kernel!r}")
    fields = {"kernel": kernel, "stride": stride, "pad": pad, "dilation": dilation}
    for field, values in fields.items():
        if len(values) != len(kernel):
            raise ConfigError(f"{kind}.{field} must have {len(kernel)} sizes as kernel has, got {values!r}")
        for value in values:
            check_int(f"{kind}.{field}", value, 0 if field == "pad" else 1)


def single(kind: str, inputs: Sequence[Shape], rank: int | None = None) -> Shape:
    """Return the only input of a layer.

    Args:
        kind: Kind of the layer, for messages.
        inputs: Shapes of its inputs.
        rank: Number of position dimensions that the input must have; None: any.

    Raises:
        ConfigError: There are more inputs or none, or the input has other position dimensions.
    """
    if len(inputs) != 1:
        raise ConfigError(f"{kind} needs 1 input, got {len(inputs)}")
    if rank is not None and len(inputs[0].positions) != rank:
        raise ConfigError(
            f"{kind} with a {rank}-D window needs {rank} position dimensions, got {shape_text(inputs[0])}"
        )
    return inputs[0]


def window_size(
    kind: str, size: int, *, kernel: int, stride: int, pad: int, dilation: int = 1, ceil_mode: bool = False
) -> int:
    """Return the number of window positions along one dimension.

    Args:
        kind: Kind of the layer, for messages.
        size: Elements of the input.
        kernel: Elements of the window.
        stride: Elements from one window to the next.
        pad: Padding on both sides.
        dilation: Distance of the window's elements.
        ceil_mode: Allow a last window that ends behind the padded input, if it begins inside the input or its left
            padding, as PyTorch and Caffe do.

    Raises:
        ConfigError: The window is larger than the padded input.
    """
    span, padded = dilation * (kernel - 1) + 1, size + 2 * pad
    if span > padded:
        raise ConfigError(f"{kind}.kernel spans {span}, must be at most the padded input's {padded}")
    room = padded - span
    count = (math.ceil(room / stride) if ceil_mode else room // stride) + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= size + pad else count


def position_dims(rank: int) -> tuple[str, ...]:
    """Return the names of ``rank`` position dimensions."""
    if not 0 <= rank <= MAX_RANK:
        raise ConfigError(f"an image has 0 to {MAX_RANK} position dimensions, got {rank}")
    return POSITIONS[rank]


def shape_text(shape: Shape) -> str:
    """Return a shape as text: ``512 x 64 x 224 x 224``."""
    return " x ".join(map(str, shape.sizes))
