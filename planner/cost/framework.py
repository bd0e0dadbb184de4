"""Frameworks: the rules by which training software joins gradients into buffers, and when it sends and updates.

Four layers whose gradients are computed in the order d, c, b, a (time runs to the right, ``|`` ends the backward pass):

    ideal      d  c  b  a|          a sum for each layer, all as soon as they can, and updates as sums arrive
    ddp           dc    ba|         buckets one after the other, all updates after the last
    horovod    .  d  .  cb  .  a|   what was ready at a tick of the cycle, after all ranks have agreed on it
    ps         d  c  b  a|  a  b  c  d   gradients to the memory of the hosts, parameters back at the next step

Source:
    ddp: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020, Sec. 3.2.3;
    the sizes are the defaults of ``torch.nn.parallel.DistributedDataParallel``.
    horovod: Sergeev and Del Balso, "Horovod: fast and easy distributed deep learning in TensorFlow", 2018, Sec. 4;
    HOROVOD_FUSION_THRESHOLD is 64 MiB, HOROVOD_CYCLE_TIME 5 ms before version 0.21 and 1 ms since (release notes).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from groundwork.errors import ConfigError
from groundwork.suggestions import did_you_mean
from groundwork.units import MICRO, MILLI

_MIB = 2**20
_LEAST, _MOST = 1e-9, 1e6
"""Least value of a parameter but 0, and the largest: a terabyte, or a quarter of an hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """The rules by which training software synchronises gradients and updates parameters."""

    name: str
    text: str
    """The name with parameters, as it was given."""
    first_bucket_bytes: float = 0.0
    """Size at which the first bucket of a backward pass is full."""
    bucket_bytes: float = 0.0
    """Size at which every other bucket is full; 0 for a bucket for each layer."""
    fits: bool = False
    """True if a bucket holds at most ``bucket_bytes`` unless it is a single layer; else it ends once it has so many."""
    cycle_s: float = 0.0
    """Time between two looks for gradients that are ready; 0 if gradients are sent at once."""
    negotiation_s: float = 0.0
    """Time for each rank until all have agreed on a buffer."""
    fetches_first: bool = False
    """True if no layer computes before all parameters are fetched from their servers."""
    fetches_randomly: bool = False
    """True if parameters are fetched in a random order, not in that of the layers."""

    @property
    def is_synchronous(self) -> bool:
        """True if updates wait for the gradients of all layers."""
        return self.name != "ideal"

    @property
    def has_servers(self) -> bool:
        """True if hosts hold the parameters: gradients are sent to them, and parameters fetched from them."""
        return self.name == "ps"

    @property
    def coordinates(self) -> bool:
        """True if a buffer waits for a cycle or for the agreement of all ranks."""
        return self.cycle_s > 0 or self.negotiation_s > 0

    def capacity_bytes(self, buckets: int) -> float:
        """Return the size of the next bucket, after so many that are full."""
        return self.bucket_bytes if buckets else self.first_bucket_bytes

    def is_full(self, held_bytes: float, buckets: int) -> bool:
        """Return whether a bucket that holds so many bytes is closed at once."""
        return not self.fits and held_bytes >= self.capacity_bytes(buckets)

    def takes(self, held_bytes: float, more_bytes: float, buckets: int) -> bool:
        """Return whether a bucket that holds some bytes takes more of them."""
        return not self.fits or held_bytes + more_bytes <= self.capacity_bytes(buckets)


IDEAL = Framework(name="ideal", text="ideal")
"""No framework: a sum for each layer as soon as its gradients are there, and an update as soon as they are summed."""
FRAMEWORKS: Mapping[str, Mapping[str, float]] = {
    "ideal": {},
    "ddp": {"first_mib": 1.0, "bucket_mib": 25.0},
    # The microseconds of the agreement for each rank are assumed: the coordinator reads a small message of every rank
    # and answers it.
    "horovod": {"fusion_mib": 64.0, "cycle_ms": 1.0, "rank_us": 5.0},
    "ps": {"first": 0.0, "random": 1.0},
}
"""Frameworks by name, with the defaults of their parameters."""


def framework_of(text: str) -> Framework:
    """Return the framework of a name, with parameters behind a colon: ``horovod:fusion_mib=0,cycle_ms=5``.

    Raises:
        ConfigError: The name or a parameter is unknown, or a value is neither 0 nor from a billionth to a million.
    """
    name, _, rest = text.partition(":")
    if name not in FRAMEWORKS:
        raise ConfigError(
            f"framework must be one of {', '.join(FRAMEWORKS)}, got {name!r}{did_you_mean(name, FRAMEWORKS)}"
        )
    values = parameter_values("framework", name, rest, FRAMEWORKS[name])
    if name == "ddp":
        first, others = values["first_mib"] * _MIB, values["bucket_mib"] * _MIB
        return Framework(name=name, text=text, first_bucket_bytes=first, bucket_bytes=others)
    if name == "horovod":
        fused = values["fusion_mib"] * _MIB
        return Framework(
            name=name,
            text=text,
            first_bucket_bytes=fused,
            bucket_bytes=fused,
            fits=True,
            cycle_s=values["cycle_ms"] * MILLI,
            negotiation_s=values["rank_us"] * MICRO,
        )
    if name == "ps":
        return Framework(name=name, text=text, fetches_first=values["first"] > 0, fetches_randomly=values["random"] > 0)
    return IDEAL


def parameter_values(what: str, name: str, text: str, defaults: Mapping[str, float]) -> dict[str, float]:
    """Return the values of the parameters of a framework or of software.

    Args:
        what: ``framework`` or ``software``, for messages.
        name: Its name.
        text: Parameters as they were given: ``cycle_ms=5,rank_us=2``.
        defaults: All parameters of the name.

    Raises:
        ConfigError: A parameter is unknown, or a value neither 0 nor from a billionth to a million.
    """
    values = dict(defaults)
    for word in text.split(",") if text else ():
        key, equals, value = word.partition("=")
        if not equals or key not in values:
            listed = ", ".join(values) or "left out"
            raise ConfigError(f"parameters of {what} {name} must be {listed}, got {word!r}{did_you_mean(key, values)}")
        values[key] = _number(f"{name}.{key}", value)
    return values


def _number(field: str, text: str) -> float:
    """Return the number that a text stands for."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if value != 0 and not _LEAST <= value <= _MOST:
        raise ConfigError(f"{field} must be 0 or a number from {_LEAST:g} to {_MOST:g}, got {text!r}")
    return value
