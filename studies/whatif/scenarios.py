"""Scenarios of a changed cluster: strategies today, and with other links, slower devices, or failures."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

import pandas as pd

from hwprofiles import ConfigError, OrreryError, Progress
from hwprofiles.catalogue import load_cluster
from hwprofiles.devices import DeviceGraph, Link
from planner.models import load_model
from planner.parallel import check_strategy
from planner.plan import Plan, lower_plan, make_plan
from planner.simulation import Sensitivity, sensitivities

__all__ = ["Scenario", "WhatIf", "WhatIfRow", "standard_scenarios", "whatif"]

TODAY = "today"
STRAGGLER_SPEED, SLOW_LINK = 0.5, 0.1
"""Speeds of a straggler and of a slow link, relative to today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A changed cluster."""

    name: str
    changes: tuple[str, ...] = ()
    """Assignments such as ``link.ib.bandwidth_gbyte_per_s=25``; they may also set parameters of the cluster."""

    def spec(self, cluster: str) -> str:
        """Return the changed cluster, as ``load_cluster`` takes it.

        Args:
            cluster: Today's cluster, likewise.
        """
        if not self.changes:
            return cluster
        return f"{cluster}{',' if ':' in cluster else ':'}{','.join(self.changes)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfRow:
    """One strategy under one scenario."""

    scenario: str
    strategy: str
    devices: int
    batch: int
    iteration_s: float = float("nan")
    images_per_s: float = float("nan")
    against_today: float = float("nan")
    """Images a second, relative to the same strategy today."""
    reason: str = ""
    """Reason why there is no plan; empty where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """All rows, and the sensitivities of today's iterations to faster hardware."""

    model: str
    cluster: str
    scenarios: tuple[Scenario, ...]
    rows: tuple[WhatIfRow, ...]
    sensitivities: dict[str, tuple[Sensitivity, ...]] = field(default_factory=dict)
    """Sensitivities of each strategy today, by its name."""

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each strategy and scenario."""
        return pd.DataFrame([asdict(row) for row in self.rows])


def standard_scenarios(cluster: DeviceGraph) -> tuple[Scenario, ...]:
    """Return the usual faults as scenarios.

    They are a straggler; for every class of links in use a slow one and a failed one, in one direction or both; and the
    failure of a node.
    """
    first = cluster.devices[0].name
    scenarios = [Scenario(name=f"{first} at half speed", changes=(f"device.{first}.speed={STRAGGLER_SPEED:g}",))]
    used: dict[str, Link] = {}
    for link in (cluster.links[i] for target in range(1, len(cluster.devices)) for i in cluster.route(0, target)):
        used.setdefault(link.link_class, link)
    for link_class, link in used.items():
        slow = f"link.{link.name}.bandwidth_factor={SLOW_LINK:g}"
        scenarios.append(Scenario(name=f"{link.name} ({link_class}) at a tenth", changes=(slow,)))
        ends = {(link.source, link.target), (link.target, link.source)}
        both = [f"link.{row.name}.failed=1" for row in cluster.links if (row.source, row.target) in ends]
        scenarios.append(Scenario(name=f"{link.name} ({link_class}) failed, both ways", changes=tuple(both)))
    if cluster.node_count > 1:
        last = cluster.node_count - 1
        scenarios.append(Scenario(name=f"node {last} failed", changes=(f"node.{last}.failed=1",)))
    return tuple(scenarios)


def whatif(
    model: str,
    cluster: str,
    *,
    batch: int,
    strategies: Sequence[str],
    scenarios: Sequence[Scenario],
    gradient_sync: str = "ring",
    progress: Progress | None = None,
) -> WhatIf:
    """Plan and simulate strategies today and under every scenario, each strategy anew for each scenario.

    Where a scenario removes devices, the others keep their samples, so the batch shrinks with the devices.

    Args:
        model: Model, as for ``load_model``.
        cluster: Today's cluster, as for ``load_cluster``.
        batch: Samples of a mini-batch today, all devices.
        strategies: Names of strategies, as for ``make_plan``; at least one.
        scenarios: Scenarios that are compared with today.
        gradient_sync: Algorithm of gradient synchronisation, as for ``make_plan``.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: The model, cluster, batch, gradient synchronisation, a strategy or a change of a scenario breaks a
            rule, or no strategy is given.
    """
    if not strategies:
        raise ConfigError("strategies must name at least one, got none")
    for name in strategies:
        check_strategy(name)
    compared = (Scenario(name=TODAY), *scenarios)
    today, rows = load_cluster(cluster), []
    sensitivities_of: dict[str, tuple[Sensitivity, ...]] = {}
    speeds: dict[str, float] = {}
    for done, scenario in enumerate(compared):
        if progress:
            progress(scenario.name, done, len(compared))
        try:
            changed = load_cluster(scenario.spec(cluster))
        except ConfigError:
            raise
        except OrreryError as error:  # no route remains
            lost = WhatIfRow(
                scenario=scenario.name, strategy="", devices=len(today.devices), batch=batch, reason=str(error)
            )
            rows += [replace(lost, strategy=name) for name in strategies]
            continue
        smaller = batch * len(changed.devices) // len(today.devices)
        for name in strategies:
            row, plan = _row(model, changed, smaller, scenario, name, gradient_sync)
            if scenario.name == TODAY:
                speeds[name] = row.images_per_s
                if plan is not None:
                    graph = load_model(model, batch=batch)
                    sensitivities_of[name] = sensitivities(lower_plan(plan, graph, today))
            rows.append(replace(row, against_today=row.images_per_s / speeds[name]))
    return WhatIf(model=model, cluster=cluster, scenarios=compared, rows=tuple(rows), sensitivities=sensitivities_of)


def _row(
    model: str, cluster: DeviceGraph, batch: int, scenario: Scenario, strategy: str, gradient_sync: str
) -> tuple[WhatIfRow, Plan | None]:
    """Return the row of a strategy under a scenario, and its plan where there is one."""
    row = WhatIfRow(scenario=scenario.name, strategy=strategy, devices=len(cluster.devices), batch=batch)
    graph = load_model(model, batch=batch)
    try:
        plan = make_plan(graph, cluster, strategy=strategy, gradient_sync=gradient_sync)
    except OrreryError as error:
        return replace(row, reason=str(error)), None
    return replace(row, iteration_s=plan.simulated_s, images_per_s=batch / plan.simulated_s), plan
