"""The types that the 8-bit ones are compared with: one bit, a threshold, and plain floats."""

from types import ModuleType

import torch
from torch import Tensor
from typing_extensions import override

from executor.compression import cpu_kernels, torch_kernels
from executor.compression.base import DataType, check_finite
from hwprofiles import ConfigError
from planner.compression import SCALE_BYTES, Compression

__all__ = ["FloatType", "OneBit", "Threshold"]

_SIGN = -(2**31)


class OneBit(DataType):
    """A sign a number, and two values a block that the signs stand for: the means of what is >= 0 and of what is not.

    A message holds the two means of every block as float32, then the signs, the first in a byte's lowest bit.

    Source:
        Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014, Section 3: threshold 0 and the means of
        either side; a block here is a column there.
    """

    def __init__(self, spec: Compression) -> None:
        super().__init__(spec)
        self._block = int(spec["block"])

    @override
    def _encode(self, values: Tensor, message: Tensor) -> None:
        check_finite(self.name, values)
        means, packed = self._parts(message, len(values))
        _kernels(values).encode_signs(values, self._block or max(len(values), 1), means, packed)

    @override
    def _decode(self, message: Tensor, values: Tensor) -> None:
        means, packed = self._parts(message, len(values))
        _kernels(values).decode_signs(means, packed, self._block or max(len(values), 1), values)

    def _parts(self, message: Tensor, count: int) -> tuple[Tensor, Tensor]:
        head = self.spec.scales(count) * 2 * SCALE_BYTES
        return message[:head].view(torch.float32).view(-1, 2), message[head:]


def _kernels(values: Tensor) -> ModuleType:
    return cpu_kernels if values.device.type == "cpu" else torch_kernels


class Threshold(DataType):
    """What is at least a threshold in size is sent as the threshold, with its sign; the rest waits in the residual.

    How many that are depends on the data, but the size of a message must be known before: it has room for one number
    in ``every``.  Where more would go, the largest go, of equals the first; the others wait too.  A message holds the
    count as int32, then for each number sent, in order, its place in 31 bits and its sign; the room left is zero.

    Source:
        Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", Interspeech 2015, Section 3.
    """

    def __init__(self, spec: Compression) -> None:
        super().__init__(spec)
        # as float32, so that sender, receiver and reference mean the same number
        self._threshold = float(torch.tensor(spec["threshold"], dtype=torch.float32))

    @override
    def _encode(self, values: Tensor, message: Tensor) -> None:
        if len(values) >= 2**31:
            raise ConfigError(f"{self.name}: tensor must hold fewer than 2**31 numbers, got {len(values)}")
        check_finite(self.name, values)
        words = message.view(torch.int32).zero_()
        room = len(words) - 1
        place = _kernels(values).places(values, self._threshold)
        if len(place) > room:
            size = values[place].abs()
            least = torch.topk(size, room).values[-1]
            above, equal = place[size > least], place[size == least]
            place = torch.cat([above, equal[: room - len(above)]]).sort().values
        sign = torch.where(values[place] < 0, _SIGN, 0)
        words[0] = len(place)
        words[1 : 1 + len(place)] = (place | sign).int()

    @override
    def _decode(self, message: Tensor, values: Tensor) -> None:
        words = message.view(torch.int32)
        sent = torch.arange(1, len(words), device=message.device) <= words[0]
        size = torch.where(words[1:] < 0, -self._threshold, self._threshold)
        # what was not sent adds zero to the first number: no need to ask the device for the count
        values.zero_().index_add_(0, words[1:] & ~_SIGN, torch.where(sent, size, 0.0))


class FloatType(DataType):
    """float16, bfloat16 or float32, rounded to the nearest; what is too large becomes the largest."""

    @override
    def _encode(self, values: Tensor, message: Tensor) -> None:
        check_finite(self.name, values)
        largest = torch.finfo(self._dtype).max
        message.view(self._dtype).copy_(values.clamp(-largest, largest))

    @override
    def _decode(self, message: Tensor, values: Tensor) -> None:
        values.copy_(message.view(self._dtype))

    @property
    def _dtype(self) -> torch.dtype:
        dtype = getattr(torch, self.name)
        assert isinstance(dtype, torch.dtype)
        return dtype
