"""The section ``library`` of a cluster file: the library of collectives that runs on its devices."""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from groundwork.units import GIGA, MICRO
from hwprofiles.devices.collective_library import CollectiveLibrary, InSwitchSums, LibraryProtocol

_Microseconds = Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False, strict=True)]
_Share = Annotated[float, Field(gt=0.01, le=1, allow_inf_nan=False, strict=True)]


class _Section(BaseModel):
    """A mapping of the section, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Protocol(_Section):
    """A protocol, see ``LibraryProtocol``."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9]*$")]
    call_us: _Microseconds
    hop_us: _Microseconds
    far_hop_us: _Microseconds
    wire_ratio: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False, strict=True)]
    tree_hop_us: _Microseconds | None = None
    tree_far_hop_us: _Microseconds | None = None
    far_wire_ratio: Annotated[float, Field(ge=1, le=100, allow_inf_nan=False, strict=True)] | None = None
    near_only: Annotated[bool, Field(strict=True)] = False

    @property
    def in_seconds(self) -> LibraryProtocol:
        """The protocol in SI units; where nothing is said, trees and messages between nodes are as others."""
        tree_us = self.hop_us if self.tree_hop_us is None else self.tree_hop_us
        tree_far_us = self.far_hop_us if self.tree_far_hop_us is None else self.tree_far_hop_us
        return LibraryProtocol(
            name=self.name,
            call_s=self.call_us * MICRO,
            hop_s=self.hop_us * MICRO,
            far_hop_s=self.far_hop_us * MICRO,
            wire_ratio=self.wire_ratio,
            tree_hop_s=tree_us * MICRO,
            tree_far_hop_s=tree_far_us * MICRO,
            far_wire_ratio=self.wire_ratio if self.far_wire_ratio is None else self.far_wire_ratio,
            near_only=self.near_only,
        )


class _InSwitch(_Section):
    """Sums in switches, see ``InSwitchSums``."""

    call_us: _Microseconds
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
    near_send_call_us: _Microseconds | None = None

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
        if self.protocols[-1].near_only:
            raise ValueError(f"the last of protocols must not be near_only, got {self.protocols[-1].name}")
        return self

    @property
    def in_seconds(self) -> CollectiveLibrary:
        """The library in SI units."""
        return CollectiveLibrary(
            name=self.name,
            protocols=tuple(each.in_seconds for each in self.protocols),
            copy_bytes_per_s=self.copy_gbyte_per_s * GIGA,
            near_share=self.near_share,
            tree_share=self.tree_share,
            in_switch=None if self.in_switch is None else self.in_switch.in_seconds,
            in_network=None if self.in_network is None else self.in_network.in_seconds,
            near_send_call_s=None if self.near_send_call_us is None else self.near_send_call_us * MICRO,
        )


def library_of_section(section: Mapping[str, Any]) -> CollectiveLibrary:
    """Return the library that the content of a section ``library`` describes.

    Raises:
        pydantic.ValidationError: The content breaks a rule.
    """
    return LibrarySection.model_validate(dict(section)).in_seconds
