"""Copy engines: the units of a device that move its data while it computes."""

from dataclasses import dataclass, fields

from groundwork.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEngines:
    """The numbers of copy engines of a device, by kind; None stands for as many as its links carry.

    Source:
        ``asyncEngineCount`` of ``cudaDeviceProp``, CUDA Runtime API: with 1 a device copies in one direction while it
        computes, with 2 in both.  The CUDA sample ``deviceQuery`` prints it of any device.
    """

    total: int | None = None
    """Engines for copies of every kind together, as ``asyncEngineCount`` counts them."""
    host_to_device: int | None = None
    """Engines that copy from the host's memory."""
    device_to_host: int | None = None
    """Engines that copy to the host's memory."""
    peer: int | None = None
    """Engines that send to other devices of the same machine."""

    def __post_init__(self) -> None:
        for kind, count in self.declared.items():
            if count < 1:
                raise ConfigError(f"CopyEngines.{kind} must be >= 1, got {count}")

    @property
    def declared(self) -> dict[str, int]:
        """Number of engines of each kind that has one."""
        counts = {field.name: getattr(self, field.name) for field in fields(self)}
        return {kind: count for kind, count in counts.items() if count is not None}
