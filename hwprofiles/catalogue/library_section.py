"""The section ``library`` of a cluster file: the library of collectives that runs on its devices."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from groundwork.units import GIGA, KIB, MICRO
from hwprofiles.catalogue.transports import FarSteps, Microseconds, NetworkTransport, WireRatio, load_transport
from hwprofiles.devices.collective_library import CollectiveLibrary, InSwitchSums, LibraryProtocol

_Share = Annotated[float, Field(gt=0.01, le=1, allow_inf_nan=False, strict=True)]


class _Section(BaseModel):
    """A mapping of the section, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Protocol(_Section):
    """A protocol, see ``LibraryProtocol``."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*$")]
    call_us: Microseconds
    hop_us: Microseconds
    wire_ratio: WireRatio
    tree_hop_us: Microseconds | None = None
    far_hop_us: Microseconds | None = None
    tree_far_hop_us: Microseconds | None = None
    far_wire_ratio: WireRatio | None = None
    step_us: Microseconds | None = None
    message_us: Microseconds | None = None
    near_only: Annotated[bool, Field(strict=True)] | None = None

    def in_seconds(self, transport: NetworkTransport) -> LibraryProtocol:
        """Return the protocol in SI units; between nodes it does what the transport says, where it says nothing."""
        own = {key: value for key in FarSteps.model_fields if (value := getattr(self, key, None)) is not None}
        far = transport.of(self.name).model_copy(update=own)
        later = load_transport(transport.later_as).of(self.name) if transport.later_as else far
        return LibraryProtocol(
            name=self.name,
            call_s=self.call_us * MICRO,
            hop_s=self.hop_us * MICRO,
            far_hop_s=far.far_hop_us * MICRO,
            wire_ratio=self.wire_ratio,
            tree_hop_s=(self.hop_us if self.tree_hop_us is None else self.tree_hop_us) * MICRO,
            tree_far_hop_s=far.tree_far_hop_us * MICRO,
            far_wire_ratio=far.far_wire_ratio,
            near_only=far.near_only,
            step_s=far.step_us * MICRO,
            message_s=far.message_us * MICRO,
            later_hop_s=max(later.far_hop_us, far.far_hop_us) * MICRO,
            later_message_s=max(later.message_us, far.message_us) * MICRO,
            message_bytes=far.message_kib * KIB,
        )


class _InSwitch(_Section):
    """Sums in switches, see ``InSwitchSums``."""

    call_us: Microseconds
    link_share: _Share

    @property
    def in_seconds(self) -> InSwitchSums:
        """The sums in SI units."""
        return InSwitchSums(call_s=self.call_us * MICRO, link_share=self.link_share)


class LibrarySection(_Section):
    """The library, see ``CollectiveLibrary``."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    protocols: Annotated[tuple[_Protocol, ...], Field(min_length=1, max_length=8)]
    copy_gbyte_per_s: Annotated[float, Field(ge=1e-3, le=1e6, allow_inf_nan=False, strict=True)]
    near_share: _Share = 1.0
    tree_share: _Share | None = 0.92
    in_switch: _InSwitch | None = None
    in_network: _InSwitch | None = None
    split_trees: Annotated[bool, Field(strict=True)] = True
    send_call_us: Microseconds | None = None
    send_share: _Share = 1.0
    amd_hosts: Annotated[bool, Field(strict=True)] = False
    release: Annotated[str, Field(pattern=r"^[0-9]{1,4}(\.[0-9]{1,4}){1,3}$", strict=True)] | None = None

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        """Raise where two protocols have one name."""
        names = [protocol.name for protocol in self.protocols]
        if len(set(names)) < len(names):
            raise ValueError(f"protocols need different names, got {', '.join(names)}")
        return self

    @model_validator(mode="after")
    def _last_crosses_nodes(self) -> Self:
        """Raise where the last protocol, by which long sends go, stays inside nodes."""
        if self.protocols[-1].near_only is True:
            raise ValueError(f"the last of protocols must not be near_only, got {self.protocols[-1].name}")
        return self

    def in_seconds(self, transport: NetworkTransport) -> CollectiveLibrary:
        """Return the library in SI units, over a transport between nodes."""
        return CollectiveLibrary(
            name=self.name,
            protocols=tuple(each.in_seconds(transport) for each in self.protocols),
            copy_bytes_per_s=self.copy_gbyte_per_s * GIGA,
            near_share=self.near_share,
            tree_share=self.tree_share,
            split_trees=self.split_trees,
            in_switch=None if self.in_switch is None else self.in_switch.in_seconds,
            in_network=None if self.in_network is None else self.in_network.in_seconds,
            send_call_s=None if self.send_call_us is None else self.send_call_us * MICRO,
            send_share=self.send_share,
            amd_hosts=self.amd_hosts,
            release=None if self.release is None else tuple(map(int, self.release.split("."))),
            declared_s=transport.declared_us * MICRO,
            post_s=transport.post_us * MICRO,
            inline_s=transport.inline_us * MICRO,
            inline_bytes=transport.inline_bytes,
            rank_bytes_per_s=None if transport.rank_gbyte_per_s is None else transport.rank_gbyte_per_s * GIGA,
        )


def library_of_section(section: Mapping[str, Any], transport: NetworkTransport) -> CollectiveLibrary:
    """Return the library that the content of a section ``library`` describes, over a transport between nodes.

    Raises:
        pydantic.ValidationError: The content breaks a rule.
    """
    return LibrarySection.model_validate(dict(section)).in_seconds(transport)
