"""What every data type of messages can do: a tensor in, a flat run of bytes out, and back."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.compression import cpu_kernels, torch_kernels
from hwprofiles import ConfigError
from planner.compression import Compression

__all__ = ["DataType", "Encoded", "check_finite"]


@dataclass(frozen=True, slots=True)
class Encoded:
    """An encoded tensor."""

    message: Tensor
    """Shape (bytes,), uint8, on the tensor's device: all that the other side needs beside type and shape."""
    shape: torch.Size


class DataType(ABC):
    """A way to write tensors with fewer bytes.

    Args:
        spec: Name and parameters.
    """

    def __init__(self, spec: Compression) -> None:
        self.spec = spec
        self.name = spec.name
        self.feedback = spec.feedback
        """Whether ``encode`` needs a residual: what earlier messages left out."""

    def encoded_bytes(self, elements: int) -> int:
        """Size of the message of so many numbers, in bytes; it depends on nothing else."""
        return self.spec.encoded_bytes(elements)

    def bytes_per_element(self, elements: int) -> float:
        """The same for one of so many numbers, scales included."""
        return self.encoded_bytes(elements) / elements

    def encode(self, tensor: Tensor, residual: Tensor | None = None, *, out: Tensor | None = None) -> Encoded:
        """Encode a tensor.

        Args:
            tensor: Floating point, any shape; read as float32.
            residual: float32, of the tensor's shape, contiguous: added to the tensor before it is encoded, then
                overwritten with what decoding will miss.  Any type takes one, those with ``feedback`` need it.
            out: Where the message is written: uint8, of its size, contiguous, at a multiple of four bytes.

        Raises:
            ConfigError: The tensor is not floating point or holds NaN or infinities, or the residual is missing or
                of another kind, or ``out`` is; the residual is then as it was.
        """
        if not tensor.is_floating_point():
            raise ConfigError(f"{self.name}: tensor must be floating point, got {tensor.dtype}")
        self._check_residual(tensor, residual)
        values = tensor.detach().to(torch.float32).contiguous().view(-1)
        if residual is not None:
            values = values + residual.view(-1)
        if out is None:
            out = torch.empty(self.encoded_bytes(len(values)), dtype=torch.uint8, device=values.device)
        self._check_message(out, len(values))
        if out.storage_offset() % 4:
            raise ConfigError(f"{self.name}: out must begin at a multiple of 4 bytes, got {out.storage_offset()}")
        self._encode(values, out)
        if residual is not None:
            left = residual.view(-1)
            self._decode(out, left)
            torch.sub(values, left, out=left)
        return Encoded(out, tensor.shape)

    def decode(
        self, message: Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32, *, out: Tensor | None = None
    ) -> Tensor:
        """The tensor that a message stands for.

        Args:
            message: As ``encode`` made it.
            shape: Of the tensor.
            dtype: Of the result; what it cannot hold is rounded as torch rounds.
            out: Where the numbers are written: float32, of this shape, contiguous.

        Raises:
            ConfigError: The message is not of this type and size, or ``out`` is of another kind.
        """
        count = torch.Size(shape).numel()
        self._check_message(message, count)
        if out is None:
            out = torch.empty(torch.Size(shape), dtype=torch.float32, device=message.device)
        self._check_numbers("out", out, torch.Size(shape))
        aligned = message.clone() if message.storage_offset() % 4 else message
        self._decode(aligned, out.view(-1))
        return out.to(dtype)

    @abstractmethod
    def _encode(self, values: Tensor, message: Tensor) -> None:
        """Write the message of float32 ``values``, shape (n,)."""

    @abstractmethod
    def _decode(self, message: Tensor, values: Tensor) -> None:
        """Write the float32 ``values`` of a message, shape (n,)."""

    def _check_message(self, message: Tensor, count: int) -> None:
        size = self.encoded_bytes(count)
        if message.dtype != torch.uint8 or message.shape != (size,) or not message.is_contiguous():
            raise ConfigError(
                f"{self.name}: message must be {size} bytes in a row for {count} numbers, "
                f"got {message.dtype} of shape {tuple(message.shape)}"
            )

    def _check_residual(self, tensor: Tensor, residual: Tensor | None) -> None:
        if residual is None:
            if self.feedback:
                raise ConfigError(f"{self.name}: residual must be given, zeros at first, got none")
        else:
            self._check_numbers("residual", residual, tensor.shape)

    def _check_numbers(self, field: str, numbers: Tensor, shape: torch.Size) -> None:
        if numbers.dtype != torch.float32 or numbers.shape != shape or not numbers.is_contiguous():
            raise ConfigError(
                f"{self.name}: {field} must be contiguous float32 of shape {tuple(shape)}, "
                f"got {numbers.dtype} of shape {tuple(numbers.shape)}"
            )


def check_finite(name: str, values: Tensor, block: int = 0) -> Tensor:
    """Refuse what is not finite.

    Args:
        name: Of the type, for the message.
        values: Shape (n,), float32.
        block: Numbers in a block; 0: all.

    Returns:
        Largest magnitude of every block, shape (blocks,); one 0 for all where there are no numbers.

    Raises:
        ConfigError: A number is infinite or NaN; the first is named.
    """
    if not len(values):
        return values.new_zeros(0 if block else 1)
    kernels = cpu_kernels if values.device.type == "cpu" else torch_kernels
    maxima: Tensor = kernels.absolute_maxima(values, block or len(values))
    if not bool(torch.isfinite(maxima).all()):
        first = int(torch.nonzero(~torch.isfinite(values))[0])
        kind = "NaN" if bool(values[first].isnan()) else f"{float(values[first]):+}inity"
        raise ConfigError(f"{name}: tensor must be finite, got {kind} at element {first} of {len(values)}")
    return maxima
