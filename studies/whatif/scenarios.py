"""What-if by hand: strategies on a cluster today, and with other links, slower devices, or something failed."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace

import pandas as pd

from hwprofiles import ConfigError, OrreryError
from hwprofiles.catalogue import load_cluster
from hwprofiles.devices import DeviceGraph, Link
from planner.models import load_model
from planner.parallel import check_strategy
from planner.plan import Plan, lower_plan, make_plan
from planner.simulation import Sensitivity, sensitivities

__all__ = ["Scenario", "WhatIf", "WhatIfRow", "standard_scenarios", "whatif"]

TODAY = "today"
STRAGGLER_SPEED, SLOW_LINK = 0.5, 0.1
"""Of a straggler, and of one slow link, relative to what they are today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A cluster as it might be."""

    name: str
    changes: tuple[str, ...] = ()
    """Assignments as ``hwprofiles.catalogue.changes`` reads them; they may also give parameters of the cluster."""

    def spec(self, cluster: str) -> str:
        """The changed cluster, as ``load_cluster`` takes it."""
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
    """Why it cannot be had."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """All rows, and what faster hardware would change today."""

    model: str
    cluster: str
    scenarios: tuple[Scenario, ...]
    rows: tuple[WhatIfRow, ...]
    sensitivities: dict[str, tuple[Sensitivity, ...]] = field(default_factory=dict)
    """By strategy, today."""

    def to_frame(self) -> pd.DataFrame:
        """One row a strategy and scenario."""
        return pd.DataFrame([asdict(row) for row in self.rows])


def standard_scenarios(cluster: DeviceGraph) -> tuple[Scenario, ...]:
    """What goes wrong: a straggler; of every class of links in use, one slow and one failed; a lost node."""
    first = cluster.devices[0].name
    found = [Scenario(name=f"{first} at half speed", changes=(f"device.{first}.speed={STRAGGLER_SPEED:g}",))]
    used: dict[str, Link] = {}
    for link in (cluster.links[i] for target in range(1, len(cluster.devices)) for i in cluster.route(0, target)):
        used.setdefault(link.link_class, link)
    for link_class, link in used.items():
        slow = f"link.{link.name}.bandwidth_factor={SLOW_LINK:g}"
        found.append(Scenario(name=f"{link.name} ({link_class}) at a tenth", changes=(slow,)))
        ends = {(link.source, link.target), (link.target, link.source)}
        both = [f"link.{row.name}.failed=1" for row in cluster.links if (row.source, row.target) in ends]
        found.append(Scenario(name=f"{link.name} ({link_class}) failed, both ways", changes=tuple(both)))
    if cluster.node_count > 1:
        last = cluster.node_count - 1
        found.append(Scenario(name=f"node {last} failed", changes=(f"node.{last}.failed=1",)))
    return tuple(found)


def whatif(
    model: str,
    cluster: str,
    *,
    batch: int,
    strategies: Sequence[str],
    scenarios: Sequence[Scenario],
    gradient_sync: str = "ring",
    progress: Callable[[str, int, int], None] | None = None,
) -> WhatIf:
    """Plan and simulate strategies today and under every scenario; each strategy is planned anew for each.

    Where a scenario takes devices away, the others keep their samples, so the batch shrinks with them.

    Args:
        model: As for ``load_model``.
        cluster: As for ``load_cluster``: today's.
        batch: Samples of all devices today.
        strategies: Names, as for ``make_plan``; at least one.
        scenarios: Beside today.
        exchange: As for ``make_plan``.
        progress: Called as ``progress(label, done, total)``.

    Raises:
        ConfigError: The model, cluster, batch, exchange or a strategy breaks a rule, a change of a scenario does, or no
            strategy is given.
    """
    if not strategies:
        raise ConfigError("strategies must name at least one, got none")
    for name in strategies:
        check_strategy(name)
    asked = (Scenario(name=TODAY), *scenarios)
    today, rows = load_cluster(cluster), []
    sensitive: dict[str, tuple[Sensitivity, ...]] = {}
    speeds: dict[str, float] = {}
    for done, scenario in enumerate(asked):
        if progress:
            progress(scenario.name, done, len(asked))
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
        left = batch * len(changed.devices) // len(today.devices)
        for name in strategies:
            row, plan = _row(model, changed, left, scenario, name, gradient_sync)
            if scenario.name == TODAY:
                speeds[name] = row.images_per_s
                if plan is not None:
                    graph = load_model(model, batch=batch)
                    sensitive[name] = sensitivities(lower_plan(plan, graph, today))
            rows.append(replace(row, against_today=row.images_per_s / speeds[name]))
    return WhatIf(model=model, cluster=cluster, scenarios=asked, rows=tuple(rows), sensitivities=sensitive)


def _row(
    model: str, cluster: DeviceGraph, batch: int, scenario: Scenario, strategy: str, gradient_sync: str
) -> tuple[WhatIfRow, Plan | None]:
    row = WhatIfRow(scenario=scenario.name, strategy=strategy, devices=len(cluster.devices), batch=batch)
    graph = load_model(model, batch=batch)
    try:
        plan = make_plan(graph, cluster, strategy=strategy, gradient_sync=gradient_sync)
    except OrreryError as error:
        return replace(row, reason=str(error)), None
    return replace(row, iteration_s=plan.simulated_s, images_per_s=batch / plan.simulated_s), plan
