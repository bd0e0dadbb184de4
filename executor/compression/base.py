"""Base of the data types of messages: a tensor is compressed into a flat run of bytes, and back."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from executor.compression.kernel_choice import kernels_for
from groundwork.errors import ConfigError
from planner.compression.data_types import Compression


@dataclass(frozen=True, slots=True)
class CompressedTensor:
    """A compressed message and the shape of its tensor."""

    message: Tensor
    """Shape (bytes,), uint8, on the tensor's device: all that the receiver needs beside type and shape."""
    shape: torch.Size


class DataType(ABC):
    """A codec: writes tensors with fewer bytes, and reads them again."""

    def __init__(self, spec: Compression) -> None:
        self.spec = spec
        self.name = spec.name
        self.feedback = spec.feedback
        """True if ``compress`` needs a residual, the sum of what earlier messages left out."""

    def compressed_bytes(self, elements: int) -> int:
        """Return the size of a message with so many elements, in bytes; it depends on nothing else."""
        return self.spec.compressed_bytes(elements)

    def compress(
        self, tensor: Tensor, residual: Tensor | None = None, *, out: Tensor | None = None
    ) -> CompressedTensor:
        """Compress a tensor.

        Args:
            tensor: Floating point, any shape; read as float32.
            residual: float32, of the tensor's shape, contiguous: added to the tensor before it is compressed, then
                overwritten with what decompression will miss.  Any type accepts one, those with ``feedback`` need it.
            out: Buffer of the message: uint8, of its size, contiguous, at a multiple of four bytes.

        Raises:
            ConfigError: The tensor is not floating point or holds NaN or infinities, or the residual is missing or
                of another kind, or ``out`` is; the residual is then unchanged.
        """
        if not tensor.is_floating_point():
            raise ConfigError(f"{self.name}: tensor must be floating point, got {tensor.dtype}")
        if residual is None:
            if self.feedback:
                raise ConfigError(f"{self.name}: residual must be given, zeros at first, got none")
        else:
            self._check_elements("residual", residual, tensor.shape)
        values = tensor.detach().to(torch.float32).contiguous().view(-1)
        if residual is not None:
            values = values + residual.view(-1)
        if out is None:
            out = torch.empty(self.compressed_bytes(len(values)), dtype=torch.uint8, device=values.device)
        self._check_message(out, len(values))
        if out.storage_offset() % 4:
            raise ConfigError(f"{self.name}: out must begin at a multiple of 4 bytes, got {out.storage_offset()}")
        self._compress(values, out)
        if residual is not None:
            left = residual.view(-1)
            self._decompress(out, left)
            torch.sub(values, left, out=left)
        return CompressedTensor(out, tensor.shape)

    def decompress(
        self, message: Tensor, shape: Sequence[int], dtype: torch.dtype = torch.float32, *, out: Tensor | None = None
    ) -> Tensor:
        """Return the tensor that a message stands for.

        Args:
            message: A message of ``compress``.
            shape: Shape of the tensor.
            dtype: Type of the result's elements; values that it cannot hold are rounded as torch rounds.
            out: Buffer of the elements: float32, of this shape, contiguous.

        Raises:
            ConfigError: The message is not of this type and size, or ``out`` is of another kind.
        """
        count = torch.Size(shape).numel()
        self._check_message(message, count)
        if out is None:
            out = torch.empty(torch.Size(shape), dtype=torch.float32, device=message.device)
        self._check_elements("out", out, torch.Size(shape))
        aligned = message.clone() if message.storage_offset() % 4 else message
        self._decompress(aligned, out.view(-1))
        return out.to(dtype)

    @abstractmethod
    def _compress(self, values: Tensor, message: Tensor) -> None:
        """Write the message of float32 ``values``, shape (n,)."""

    @abstractmethod
    def _decompress(self, message: Tensor, values: Tensor) -> None:
        """Write the float32 ``values`` of a message, shape (n,)."""

    def _check_message(self, message: Tensor, count: int) -> None:
        size = self.compressed_bytes(count)
        if message.dtype != torch.uint8 or message.shape != (size,) or not message.is_contiguous():
            raise ConfigError(
                f"{self.name}: message must be {size} bytes in a row for {count} elements, "
                f"got {message.dtype} of shape {tuple(message.shape)}"
            )

    def _check_elements(self, field: str, elements: Tensor, shape: torch.Size) -> None:
        if elements.dtype != torch.float32 or elements.shape != shape or not elements.is_contiguous():
            raise ConfigError(
                f"{self.name}: {field} must be contiguous float32 of shape {tuple(shape)}, "
                f"got {elements.dtype} of shape {tuple(elements.shape)}"
            )


def check_finite(name: str, values: Tensor, block: int = 0) -> Tensor:
    """Check that all elements are finite, and return the largest magnitude of every block.

    Args:
        name: Name of the type, for the error message.
        values: Shape (n,), float32.
        block: Number of elements in a block; 0: all.

    Returns:
        Shape (blocks,); a single 0 where there are no elements.

    Raises:
        ConfigError: An element is infinite or NaN; the message names the first.
    """
    if not len(values):
        return values.new_zeros(0 if block else 1)
    maxima = kernels_for(values.device).block_maxima(values, block or len(values))
    if not bool(torch.isfinite(maxima).all()):
        first = int(torch.nonzero(~torch.isfinite(values))[0])
        kind = "NaN" if bool(values[first].isnan()) else f"{float(values[first]):+}inity"
        raise ConfigError(f"{name}: tensor must be finite, got {kind} at element {first} of {len(values)}")
    return maxima
