"""Transports: how the software of a network moves messages between machines, as data of link classes."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from groundwork.errors import ConfigError
from groundwork.input_files import input_text
from groundwork.input_values import parsed_yaml
from groundwork.suggestions import did_you_mean

TRANSPORTS = Path(__file__).parents[1] / "transports"
DEFAULT_TRANSPORT = "infiniband"
"""NetworkTransport of cluster files that name none: what the constants of NCCL's tuner are of."""
Microseconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False, strict=True)]
WireRatio = Annotated[float, Field(ge=1, le=100, allow_inf_nan=False, strict=True)]


class _Strict(BaseModel):
    """A mapping of a transport's file, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class FarSteps(_Strict):
    """What a protocol of a library does between machines; a cluster file may say otherwise of its own."""

    far_hop_us: Microseconds
    """Latency of a ring's step between machines."""
    tree_far_hop_us: Microseconds
    """The same of a tree."""
    far_wire_ratio: WireRatio
    """Bytes of rings on the links between machines by byte of the buffer."""
    step_us: Microseconds = 0.0
    """Least time of each step of a ring that crosses machines: what posting a message takes."""
    message_us: Microseconds = 0.0
    """Time for which a long message of a ring keeps its channel."""
    message_kib: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False, strict=True)] = 64.0
    """Bytes from which a message is long; shorter ones take a share of that time by their length."""
    near_only: Annotated[bool, Field(strict=True)] = False
    """True if nothing goes by the protocol between machines."""


class NetworkTransport(_Strict):
    """A transport: latency of steps between machines by protocol, cost of messages, rate of the ranks' threads."""

    version: Literal[1]
    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    description: str
    sources: tuple[str, ...]
    declared_us: Microseconds
    """Latency that the network's plug-in tells the library's tuner."""
    rank_gbyte_per_s: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False, strict=True)] | None = None
    """Rate at which the thread of a rank copies what it sends to other machines; None: it copies nothing."""
    post_us: Microseconds = 0.0
    """Time in which the thread of a rank posts a send to another machine, one after another."""
    inline_us: Microseconds = 0.0
    """Time by which that takes longer where the send goes with its command, to which processors copy its data."""
    inline_bytes: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False, strict=True)] = 0.0
    """Bytes of the longest such send."""
    later_as: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")] | None = None
    """Transport whose latency and cost the messages of rings have that arrive before their receive is posted."""
    protocols: Mapping[str, FarSteps]

    def of(self, protocol: str) -> FarSteps:
        """Return what a protocol does; those of other names are as the last, which long sends take."""
        return self.protocols.get(protocol) or list(self.protocols.values())[-1]


def transport_names() -> list[str]:
    """Return the names of all transports, sorted."""
    return sorted(path.stem for path in TRANSPORTS.glob("*.yaml"))


@lru_cache(maxsize=16)
def load_transport(name: str) -> NetworkTransport:
    """Return a transport of the catalogue.

    Raises:
        ConfigError: There is none of this name.
    """
    known = transport_names()
    if name not in known:
        raise ConfigError(f"transport must be one of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}")
    path = TRANSPORTS / f"{name}.yaml"
    return NetworkTransport.model_validate(parsed_yaml(input_text(path, "transport"), f"transport {name}"))
