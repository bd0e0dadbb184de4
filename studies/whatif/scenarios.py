"""Scenarios of a changed cluster: strategies today, and with other links, slower devices, or failures."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pandas as pd

from groundwork.errors import ConfigError, OrreryError, UnreachableError
from groundwork.progress import Progress, keeping
from hwprofiles.catalogue.cluster_catalogue import cluster_with, load_cluster, load_surviving
from hwprofiles.devices.device_graph import DeviceGraph
from hwprofiles.devices.link import Link
from planner.expected.likely_times import TimeParts, likely_ratio
from planner.graph.computation_graph import ComputationGraph
from planner.models.registry import load_model
from planner.plan.lowered_plan import folds, plan_lowering
from planner.plan.make_plan import request_for, simulated_plan
from planner.plan.pace import Pace, pace_of
from planner.plan.plan import Plan
from planner.plan.plan_request import check_plan_text
from planner.simulation.sensitivity import Sensitivity, sensitivities

TODAY = "today"
STRAGGLER_SPEED, SLOW_LINK = 0.5, 0.1
"""Speeds of a straggler and of a slow link, relative to today."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A changed cluster."""

    name: str
    changes: tuple[str, ...] = ()
    """Assignments such as ``link.ib.bandwidth_gbyte_per_s=25``; they may also set parameters of the cluster."""
    batch: int | None = None
    """Mini-batch over all devices; None: every device keeps its samples."""

    def spec(self, cluster: str) -> str:
        """Return the changed cluster, as ``load_cluster`` takes it.

        Args:
            cluster: Today's cluster, likewise.

        Raises:
            ConfigError: A change is no assignment.
        """
        if not self.changes:
            return cluster
        rows = [change.partition("=") for change in self.changes]
        if wrong := [change for change, row in zip(self.changes, rows, strict=True) if not row[1]]:
            raise ConfigError(f"change must look like name=value, got {wrong[0]!r}")
        return cluster_with(cluster, {name.strip(): value.strip() for name, _, value in rows})


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIfRow:
    """One strategy under one scenario."""

    scenario: str
    strategy: str
    devices: int
    batch: int
    iteration_s: float = float("nan")
    """Simulated time."""
    expected_s: float = float("nan")
    """Median of the times that an iteration may take."""
    likely_s: tuple[float, float] | None = None
    """80 % interval about ``expected_s``."""
    samples_per_s: float = float("nan")
    """Samples a second by the expected time."""
    tokens_per_s: float | None = None
    """Tokens a second; None where samples are no sequences of tokens."""
    mfu: float = float("nan")
    """Model FLOP utilisation, as in ``TrainingRates``."""
    against_today: float = float("nan")
    """Samples a second, relative to the same strategy today."""
    likely_against_today: tuple[float, float] | None = None
    """80 % interval of ``against_today``, in which errors that both share cancel."""
    pace: Pace | None = field(default=None, compare=False)
    """What sets the pace."""
    why: str = ""
    """What sets the pace before and after, in one sentence."""
    lost: tuple[str, ...] = ()
    """Devices that the scenario cuts off, without which the others go on."""
    detour: str = ""
    """Way round failed links, or the reason why there is none; empty where no link failed."""
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
    notes: tuple[str, ...] = ()

    def to_frame(self) -> pd.DataFrame:
        """Return one row for each strategy and scenario."""
        rows = [asdict(replace(row, pace=None)) for row in self.rows]
        return pd.DataFrame(rows).drop(columns=["pace"])


def standard_scenarios(cluster: DeviceGraph) -> tuple[Scenario, ...]:
    """Return the usual faults as scenarios.

    They are a straggler; for every class of links in use a slow one and a failed one, in one direction or both; and the
    failure of a node.
    """
    first = cluster.devices[0]
    slower = f"device.{first.name}.speed={first.speed * STRAGGLER_SPEED:.9g}"
    scenarios = [Scenario(name=f"{first.name} at half speed", changes=(slower,))]
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """What every scenario is asked."""

    model: str
    batch: int
    strategies: tuple[str, ...]
    options: Mapping[str, Any]
    """Fields of ``PlanRequest``."""
    today: DeviceGraph

    def graph(self, batch: int) -> ComputationGraph:
        """Return the network with a batch."""
        return load_model(self.model, batch=batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A row, with what comparisons with it need."""

    row: WhatIfRow
    plan: Plan | None = None
    parts: TimeParts | None = None
    profiles: frozenset[str] = frozenset()


def whatif(
    model: str,
    cluster: str,
    *,
    batch: int,
    strategies: Sequence[str],
    scenarios: Sequence[Scenario],
    progress: Progress | None = None,
    **options: Any,
) -> WhatIf:
    """Plan and simulate strategies today and under every scenario, each strategy anew for each scenario.

    Where a scenario removes or adds devices, the others keep their samples, so the batch changes with the devices,
    unless the scenario has a batch of its own.  Devices that failed links cut off are given up.

    Args:
        model: Model, as for ``load_model``.
        cluster: Today's cluster, as for ``load_cluster``.
        batch: Samples of a mini-batch today, all devices.
        strategies: Names of strategies, as for ``make_plan``; at least one.
        scenarios: Scenarios that are compared with today.
        progress: Called as ``progress(label, done, total)``.
        **options: Further fields of ``PlanRequest``, such as ``gradient_sync`` or ``dtype``.

    Raises:
        ConfigError: The model, cluster, batch, a strategy, an option or a change of a scenario breaks a rule, or no
            strategy is given.
        Interrupted: After Ctrl-C, with the scenarios that are finished; without any, KeyboardInterrupt.
    """
    if not strategies:
        raise ConfigError("strategies must name at least one, got none")
    for name in strategies:
        check_plan_text(name)
    compared = (Scenario(name=TODAY), *scenarios)
    question = _Question(
        model=model, batch=batch, strategies=tuple(strategies), options=options, today=load_cluster(cluster)
    )
    for scenario in scenarios:  # a wrong change is said before anything is computed
        with suppress(UnreachableError):
            load_cluster(scenario.spec(cluster))
    first: dict[str, _Planned] = {}
    rows, sensitivities_of = list[WhatIfRow](), dict[str, tuple[Sensitivity, ...]]()

    def result() -> WhatIf:
        count = len(rows) // len(strategies)
        left = ", ".join(scenario.name for scenario in compared[count:])
        return WhatIf(
            model=model,
            cluster=cluster,
            scenarios=compared[:count],
            rows=tuple(rows[: count * len(strategies)]),
            sensitivities=sensitivities_of,
            notes=(f"Interrupted before the end of: {left}.",) if left else (),
        )

    with keeping(lambda: result() if len(rows) >= len(strategies) else None):
        for done, scenario in enumerate(compared):
            if progress:
                progress(scenario.name, done, len(compared))
            for planned in _under(question, scenario, scenario.spec(cluster)):
                name, row = planned.row.strategy, planned.row
                if scenario.name == TODAY and planned.plan is not None and row.pace is not None:
                    graph = question.graph(batch).with_element_bytes(planned.plan.element_bytes)
                    lower_on = plan_lowering(planned.plan, graph, question.today, folded=folds(question.today))
                    sensitivities_of[name] = sensitivities(lower_on(question.today), lower_on)
                    planned = replace(planned, row=replace(row, pace=row.pace.replayed_by(sensitivities_of[name])))
                before = first.setdefault(name, planned)
                rows.append(_against(planned, before))
    return result()


def _under(question: _Question, scenario: Scenario, spec: str) -> list[_Planned]:
    """Return the rows of all strategies under a scenario."""
    today, names = question.today, question.strategies
    empty = WhatIfRow(scenario=scenario.name, strategy="", devices=len(today.devices), batch=question.batch)
    try:
        changed, lost = load_surviving(spec)
    except ConfigError:
        raise
    except OrreryError as error:  # no route remains, and not for want of links
        return [_Planned(row=replace(empty, strategy=name, reason=str(error))) for name in names]
    batch = scenario.batch or question.batch * len(changed.devices) // len(today.devices)
    has_failed = any(change.startswith("link.") and ".failed" in change for change in scenario.changes)
    detour = way_round(today, changed, lost) if has_failed else ""
    row = replace(empty, devices=len(changed.devices), batch=batch, lost=lost, detour=detour)
    if not batch:
        reason = f"batch of {question.batch} leaves no sample for {len(changed.devices)} devices"
        return [_Planned(row=replace(row, strategy=name, reason=reason)) for name in names]
    return [_planned(question, changed, replace(row, strategy=name)) for name in names]


def _planned(question: _Question, cluster: DeviceGraph, row: WhatIfRow) -> _Planned:
    """Return the row of a strategy with its plan, where there is one."""
    try:
        graph = question.graph(row.batch)
        request = request_for(graph, cluster, strategy=row.strategy, **question.options)
        planned = simulated_plan(graph.with_element_bytes(request.element_bytes), cluster, request)
    except OrreryError as error:
        return _Planned(row=replace(row, reason=str(error)))
    plan, replayed = planned.plan, planned.replayed
    row = replace(
        row,
        iteration_s=plan.simulated_s,
        expected_s=replayed.expected_s,
        likely_s=replayed.likely_s,
        samples_per_s=planned.rates.samples_per_s,
        tokens_per_s=planned.rates.tokens_per_s,
        mfu=planned.rates.mfu,
        pace=pace_of(replayed),
    )
    profiles = frozenset(device.profile for device in cluster.devices)
    return _Planned(row=row, plan=plan, parts=replayed.time_parts, profiles=profiles)


def _against(planned: _Planned, before: _Planned) -> WhatIfRow:
    """Return a row compared with the same strategy today."""
    row, ratio = planned.row, None
    if planned is before and planned.plan is not None:
        ratio = (1.0, 1.0)
    elif planned.parts is not None and before.parts is not None:
        times = likely_ratio(before.parts, planned.parts, same_kernels=_same_kernels(planned, before))
        samples = row.batch / before.row.batch
        ratio = None if times is None else (samples * times[0], samples * times[1])
    was = None if planned is before else before.row.pace
    why = "" if row.pace is None else row.pace.sentence if was is None else row.pace.against(was)
    return replace(row, against_today=row.samples_per_s / before.row.samples_per_s, likely_against_today=ratio, why=why)


def _same_kernels(planned: _Planned, before: _Planned) -> bool:
    """Return whether the parts that two plans compute have the same sizes, on devices of the same profiles."""
    if planned.plan is None or before.plan is None:
        return False
    return planned.profiles == before.profiles and _part_sizes(planned.plan) == _part_sizes(before.plan)


def _part_sizes(plan: Plan) -> dict[str, tuple[object, ...]]:
    """Return for each layer the samples of a part, and its other degrees of parallelism."""
    return {
        name: (plan.batch / each.degrees.get("sample", 1), {k: v for k, v in each.degrees.items() if k != "sample"})
        for name, each in plan.configurations.items()
    }


_MOST_PAIRS = 20_000
"""Pairs of devices whose routes are looked at for one that used a failed link."""
_MOST_NAMES = 6
"""Devices that are named."""


def way_round(today: DeviceGraph, changed: DeviceGraph, lost: tuple[str, ...]) -> str:
    """Return how transfers go without the links that failed.

    Returns:
        The new route of the first pair of devices whose route failed, or the devices that are cut off; empty where no
        link between the vertices that are left is gone.
    """
    if lost:
        names = ", ".join(lost[:_MOST_NAMES]) + (f" and {len(lost) - _MOST_NAMES} more" if lost[_MOST_NAMES:] else "")
        verb = "is" if len(lost) == 1 else "are"
        return f"no way round: {names} {verb} cut off, the other {len(changed.devices)} go on"
    left, there = {link.name for link in changed.links}, set(changed.vertices)
    failed = {
        i
        for i, link in enumerate(today.links)
        if link.name not in left and {today.vertices[link.source], today.vertices[link.target]} <= there
    }
    if not failed or set(today.vertices) - there:
        return ""
    count, looked = len(today.devices), 0
    for source in range(count):
        for target in range(count):
            looked += 1
            if looked > _MOST_PAIRS:
                return ""
            if source != target and failed & set(today.route(source, target)):
                return f"way round: {_path(changed, source, target)}"
    return "no route used it"


def _path(cluster: DeviceGraph, source: int, target: int) -> str:
    """Return the vertices of a route in order."""
    names, at = [cluster.vertices[source]], source
    for i in cluster.route(source, target):
        link = cluster.links[i]
        at = link.source if link.both_ways and link.target == at else link.target
        names.append(cluster.vertices[at])
    return " → ".join(names)
