"""Conditions: the rules by which training software runs a program, and what devices are that are no ideal machines."""

from dataclasses import dataclass

from groundwork.errors import ConfigError
from hwprofiles.devices.device_graph import DeviceGraph
from planner.cost.framework import IDEAL, Framework, framework_of
from planner.cost.software import IDEAL_SOFTWARE, Software, software_of
from planner.graph.type_roles import DataTypes
from planner.layouts.storage import REPLICATED_STORAGE, Storage

DECLARED_FRAMEWORK = "ddp"
"""Framework of clusters that describe how their library runs collectives, where none is named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a replay takes into account above overlap and contention."""

    framework: Framework = IDEAL
    """Rules of gradient synchronisation."""
    software: Software = IDEAL_SOFTWARE
    """Kernels of the network on one device, and their launches."""
    interference: bool = False
    """True if messages and arithmetic take from one another on every device."""
    spread: bool = False
    """True if iterations wait for the slowest rank."""
    types: DataTypes | None = None
    """Data types by role; None: those of the network's elements, in the arithmetic of the compute profiles."""
    optimizer: str = "momentum"
    """Optimizer whose state devices hold: ``sgd``, ``momentum`` or ``adam``."""
    storage: Storage = REPLICATED_STORAGE
    """What replicas hold of parameters, gradients and optimizer state."""
    input_images_per_s: float = 0.0
    """Samples a second that storage and decoding bring to all devices together; 0: no bound."""

    @classmethod
    def of(
        cls,
        cluster: DeviceGraph,
        framework: str | None = None,
        *,
        software: str = IDEAL_SOFTWARE.text,
        interference: bool | None = None,
        spread: bool | None = None,
        types: DataTypes | None = None,
        optimizer: str = "momentum",
        storage: Storage = REPLICATED_STORAGE,
    ) -> "Conditions":
        """Return conditions, with those that a cluster declares where none are given.

        Args:
            cluster: Cluster whose devices may declare communication channels, the speed of a board and a spread, and
                which may describe its library of collectives.
            framework: Name with parameters (``planner.cost.framework``); None: ``ddp`` with such a library.
            software: Name with parameters (``planner.cost.software``).
            interference: None: where a device declares channels, or the speed of its board.
            spread: None: where a device declares one.
            types: Data types by role; None: those of the network's elements.
            optimizer: Optimizer whose state devices hold.
            storage: What replicas hold of parameters, gradients and optimizer state.

        Raises:
            ConfigError: The framework or the software is unknown, or the cluster declares nothing of what is asked for.
        """
        if framework is None:
            framework = DECLARED_FRAMEWORK if cluster.library else IDEAL.name
        conditions = cls(
            framework=framework_of(framework),
            software=software_of(software),
            interference=interferes(cluster) if interference is None else interference,
            spread=spreads(cluster) if spread is None else spread,
            types=types,
            optimizer=optimizer,
            storage=storage,
        )
        conditions.check(cluster)
        return conditions

    @property
    def arithmetic(self) -> str:
        """Arithmetic of products, such as ``float16``; empty: that of the compute profiles."""
        return self.types.product if self.types else ""

    @property
    def casts(self) -> int:
        """Times that an iteration makes a copy of each updated parameter in the type in which products read it."""
        return 2 if self.storage.zero > 2 and self.storage.gathers_again else 1

    def check(self, cluster: DeviceGraph) -> None:
        """Refuse a cluster that declares nothing of what is to be taken into account.

        Raises:
            ConfigError: No device declares communication channels or the speed of its board, or a spread.
        """
        if self.interference and not interferes(cluster):
            raise ConfigError(
                f"interference must be off for cluster {cluster.spec}: "
                "none of its devices declares communication_channels"
            )
        if self.spread and not spreads(cluster):
            raise ConfigError(
                f"spread must be off for cluster {cluster.spec}: none of its devices declares step_spread"
            )


def declared_sync(cluster: DeviceGraph) -> str:
    """Return the algorithm of gradient synchronisation where none is named: the cluster's library, if it has one."""
    return "library" if cluster.library else "ring"


IDEAL_CONDITIONS = Conditions()
"""No framework, devices that do not interfere, and ranks that are equal."""


def interferes(cluster: DeviceGraph) -> bool:
    """Return whether any device declares communication channels, or the speed of its board."""
    return any(device.communication_channels or device.board_speed < 1 for device in cluster.devices.kinds)


def spreads(cluster: DeviceGraph) -> bool:
    """Return whether any device declares a spread."""
    return any(device.step_spread for device in cluster.devices.kinds)
