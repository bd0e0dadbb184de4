"""The request for a sweep of compression settings, whose fields the command line offers as options.

The module imports nothing heavy, so that the command line can read the fields.
"""

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from groundwork.errors import ConfigError
from groundwork.requests import check_fields, option
from studies.eight_bit.lists import factors, type_list, whole_numbers

if TYPE_CHECKING:
    from hwprofiles.devices.device_graph import DeviceGraph


UNCOMPRESSED_TYPE = "float32"
"""Data type of messages that are not compressed; every other type is compared with it."""
_MOST_DEVICES = 8
"""Most devices that are swept where no device counts are given: the time of a simulation grows with their square."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressionRequest:
    """Axes of the sweep: every combination of their values is simulated as a plan.

    Raises:
        ConfigError: A list is empty, a value breaks its rule, or a data type is unknown or keeps a residual where
            activations alone are compressed.
    """

    sub_batches: tuple[int, ...] = option(
        (1, 2, 4, 8),
        typed="1,2,4,8",
        metavar="K,K,...",
        parser=partial(whole_numbers, "sub_batches"),
        help="Sub-batches of the fully connected layers: transfers of one overlap computation of another.",
    )
    types: tuple[str, ...] = option(
        ("float16", "dynamic-tree"),
        typed="float16,dynamic-tree",
        metavar="T,T,...",
        parser=type_list,
        help="Data types of messages, such as dynamic-tree:block=4096; float32 is always beside them.",
    )
    """Data types as ``planner.compression`` names them; float32 is put in front of them."""
    devices: tuple[int, ...] = option(
        (),
        typed="",
        metavar="N,N,...",
        parser=lambda text: whole_numbers("devices", text) if text else (),
        help="Device counts; by default 2, 4, ... up to all, at most 8.",
    )
    link_speeds: tuple[float, ...] = option(
        (0.1, 0.3, 1.0, 3.0),
        typed="0.1,0.3,1,3",
        metavar="X,X,...",
        parser=partial(factors, "link_speeds"),
        help="Factors by which the speed of a class of links is multiplied.",
    )
    link_class: str = option(
        "", metavar="NAME", help="Class of these links, as in the cluster's file; by default the slowest in use."
    )
    compress: Literal["both", "activations", "gradients"] = option("both", help="Messages that are compressed.")
    exact: bool = option(
        False, names=("--exact",), help="Compute crossovers over link speed by bisection, not by interpolation."
    )
    """Compute the crossovers over link speed, each type with its best sub-batches, by bisection on simulations between
    the two points that they lie between; all others are interpolated."""

    def __post_init__(self) -> None:
        from planner.compression.data_types import compression  # loads numpy, which --help does without

        set_field = object.__setattr__  # the class is frozen
        for name in ("sub_batches", "devices", "link_speeds"):
            set_field(self, name, tuple(sorted(set(getattr(self, name)))))
        types = (UNCOMPRESSED_TYPE, *(compression(text).text for text in self.types))
        set_field(self, "types", tuple(dict.fromkeys(types)))
        if len(self.types) == 1:
            raise ConfigError(f"types must name a data type other than {UNCOMPRESSED_TYPE}, got none")
        if not self.sub_batches or self.sub_batches[0] < 1:
            raise ConfigError(f"sub_batches must be >= 1, got {list(self.sub_batches)}")
        if not self.link_speeds or not all(0 < factor < math.inf for factor in self.link_speeds):
            raise ConfigError(f"link_speeds must be finite and > 0, got {list(self.link_speeds)}")
        check_fields(self)
        with_residual = [text for text in self.types if compression(text).feedback]
        if with_residual and self.compress == "activations":
            raise ConfigError(
                f"types must keep no residual where activations alone are compressed, got {with_residual[0]!r}"
            )

    @property
    def size(self) -> int:
        """Number of points of the sweep."""
        return len(self.sub_batches) * len(self.types) * len(self.devices) * len(self.link_speeds)

    def on(self, cluster: "DeviceGraph") -> "CompressionRequest":
        """Return the request with its device counts, which are 2, 4, ... of the cluster where none are given.

        Raises:
            ConfigError: The cluster has fewer devices, or no count is 2 or more.
        """
        count = len(cluster.devices)
        doubling = [2**power for power in range(1, 1 + int(math.log2(min(count, _MOST_DEVICES))))] if count > 1 else []
        devices = self.devices or tuple(doubling)
        if not devices or devices[0] < 1 or not 2 <= devices[-1] <= count:
            given = list(devices) or "one device"
            raise ConfigError(
                f"devices must be at most the {count} of {cluster.name}, and 2 or more of them, got {given}"
            )
        return replace(self, devices=devices)
