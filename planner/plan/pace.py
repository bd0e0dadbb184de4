"""What sets the pace of an iteration: the resources that its critical path waits for, and how much of each is left.

Every step of the critical path waits for one thing: arithmetic of a device, the bandwidth of a link (also where others
share it), a link's latency, the calls of a library, the coordination of ranks, launches of hosts, or the input of
samples.  The shares of these add up to the iteration, and the largest sets the pace: every sentence that judges a plan
is made from these shares, as they are shown.

A resource that becomes twice as good saves at most half of its share, and no more than what is left of the capacity of
the most used other resource, for that one's work still has to be done; boards become faster with their devices.  That
is no bound where messages and arithmetic take from one another, as each then shortens the other; and where
sensitivities were replayed, their savings stand in its place.  What can save most is the remedy; where it is not what
sets the pace, the sentence says why.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hwprofiles.devices.link import Link
from planner.plan.analysis import Analysis, ResourceUse, resource_uses
from planner.simulation.program_replay import Replay
from planner.simulation.sensitivity import Sensitivity
from planner.simulation.steady_path import INPUT, LAUNCH, CriticalPath, PathStep, program_path

_LEAST_SHARE = 0.005
"""Share of the iteration below which a resource is not told of."""
_TOLD = 3
"""Resources that the sentence tells of."""
_NAMES = {
    "arithmetic": "arithmetic of {}",
    "bandwidth": "{} links",
    "latency": "latency of {}",
    "coordination": "coordination of the {}",
    "calls": "calls and steps of {}",
    "launches": "launches of the {}",
    "input": "the input of {}",
}
"""Kinds of resources, with what they are called."""
_BETTER = {
    "arithmetic": "faster devices",
    "bandwidth": "more bandwidth",
    "latency": "a lower latency",
    "coordination": "a quicker coordination",
    "calls": "quicker calls",
    "launches": "quicker launches",
    "input": "a faster input",
}
"""What would have to change of each kind."""
_QUANTITIES = {"arithmetic": "speed", "bandwidth": "bandwidth", "latency": "latency"}
"""Quantity of a sensitivity that stands for each kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceSetter:
    """A kind of resource on the critical path."""

    kind: str
    """One of ``_NAMES``."""
    of: str
    """Compute profile or class of links; ``ranks`` of coordination; name of a library of collectives."""
    share: float
    """Share of the iteration in which the critical path waits for it."""
    where: str
    """Device or link on which the path spends most of that time; empty of coordination and of calls."""
    saving: float
    """Share of the iteration that is saved where the resource becomes twice as good."""
    precision: str = "at most about"
    """What to say before the saving: ``at most about``, ``about``, or nothing where it was replayed."""

    @property
    def name(self) -> str:
        """Resource in words, such as ``arithmetic of p100`` or ``switch-port links``."""
        return _NAMES[self.kind].format(self.of)

    @property
    def verb(self) -> str:
        """Form of the verb "set" that goes with ``name``."""
        return "set" if self.kind in ("bandwidth", "calls", "launches") else "sets"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The resources that an iteration waits for, and the use of all of them."""

    iteration_s: float
    setters: tuple[PaceSetter, ...]
    """Resources on the critical path, the one with the largest share first."""
    busiest: tuple[ResourceUse, ...]
    """Of every class of links and kind of device that is used the busiest one, links first, the busiest first."""

    @property
    def first(self) -> PaceSetter:
        """Resource that sets the pace."""
        return self.setters[0]

    def busy(self, of: str) -> float:
        """Return the share of time in which the busiest link or device of a kind is busy; 0 where none is used."""
        return next((use.busy for use in self.busiest if use.of == of), 0.0)

    def replayed_by(self, sensitivities: Sequence[Sensitivity]) -> "Pace":
        """Return the pace with the savings that sensitivities of the same iteration have replayed."""
        effects = {(row.quantity, row.of): -row.effect for row in sensitivities}
        keys = [(_QUANTITIES.get(each.kind, ""), each.of) for each in self.setters]
        setters = [
            replace(each, saving=max(effects[key], 0.0), precision="") if key in effects else each
            for each, key in zip(self.setters, keys, strict=True)
        ]
        return replace(self, setters=tuple(setters))

    @property
    def sentence(self) -> str:
        """Say what sets the pace, what the iteration waits for, and where something else helps more, why that is.

        One clause, without a full stop: "switch-port links set the pace: the iteration waits 52% of its time for them
        (most at node26/plx0 -> node26/host), 43% for arithmetic of titanx-nervana, 5% for fdr links".
        """
        first = self.first
        waits = [f"{first.share:.0%} of its time for {'them' if first.verb == 'set' else 'it'}"]
        waits[0] += f" (most at {first.where})" if first.kind in ("bandwidth", "latency") else ""
        waits += [f"{each.share:.0%} for {each.name}" for each in self.setters[1:_TOLD] if each.share >= _LEAST_SHARE]
        told = "waits for nothing else" if len(waits) == 1 else f"waits {', '.join(waits)}"
        text = f"{first.name} {first.verb} the pace: the iteration {told}"
        return text if self.best is first else f"{text}; {self._why_not}"

    @property
    def finding(self) -> str:
        """Say in few words what sets the pace, and for how much of the time: "fdr links set the pace, 60% of it"."""
        return f"{self.first.name} {self.first.verb} the pace, {self.first.share:.0%} of the time"

    @property
    def best(self) -> PaceSetter:
        """Resource that can save most; of equal ones that with the largest share."""
        return max(self.setters, key=lambda each: each.saving)

    @property
    def _why_not(self) -> str:
        """Say why something else than what sets the pace helps more: what other resource is used too much already."""
        first = self.first
        better = "faster arithmetic" if first.kind == "arithmetic" else _BETTER[first.kind]
        if not first.precision:
            return f"{better} of {first.of} saves {first.saving:.0%}"
        used = max(_others(self.busiest, first.kind, first.of), key=lambda use: use.use)
        saves = f"{better} of {first.of} saves {first.precision.replace('most about', 'most')} {first.saving:.0%}"
        return f"{saves}, as {used.of} is {used.use:.0%} used already"

    def against(self, before: "Pace") -> str:
        """Say what sets the pace after a change and before, and how idle other links are where that is the same."""
        old, new = before.first, self.first
        if (old.kind, old.of) != (new.kind, new.of):
            return f"was {old.name} ({old.share:.0%}); now {self.sentence}"
        then, now = f"{old.share:.0%}", f"{new.share:.0%}"
        others = [use for use in self.busiest if use.of != new.of and use.is_link]
        idle = f"; {others[0].of} links are idle {1 - others[0].busy:.0%} of the time" if others else ""
        if then == now:
            return f"unchanged: {self.finding}{idle}"
        return f"as before, {new.name} {new.verb} the pace: {now} of the time, before {then}{idle}"

    @property
    def left(self) -> str:
        """Say how much is left of each resource's busiest one: of a link's time, of a device's arithmetic."""
        return ", ".join(f"{use.of} {max(1 - (use.busy if use.is_link else use.use), 0.0):.0%}" for use in self.busiest)

    @property
    def remedy(self) -> str:
        """Say what would have to change, and what that brings."""
        best = self.best
        of = f" of {best.of}" if best.kind != "arithmetic" else f" than {best.of}"
        return f"{_BETTER[best.kind]}{of}: twice as good saves {f'{best.precision} {best.saving:.0%}'.lstrip()}"


def pace_of(replayed: Replay, path: CriticalPath | None = None) -> Pace:
    """Return what sets the pace of a replay's steady iteration.

    Args:
        replayed: A replay with overlap and contention, of three iterations or more.
        path: Its critical path, if that is known.
    """
    return _pace(replayed, resource_uses(replayed), path or program_path(replayed))


def pace_of_analysis(analysis: Analysis) -> Pace:
    """Return what sets the pace of an iteration that was analysed."""
    return _pace(analysis.replay, analysis.resources, analysis.path).replayed_by(analysis.sensitivities)


def _pace(replayed: Replay, uses: Sequence[ResourceUse], path: CriticalPath) -> Pace:
    """Return the pace from the use of resources, the busiest first, and the critical path."""
    busiest = _busiest(uses)
    setters = _setters(path, replayed, busiest)
    return Pace(iteration_s=replayed.iteration_s, setters=setters, busiest=busiest)


def _setters(path: CriticalPath, replayed: Replay, busiest: Sequence[ResourceUse]) -> tuple[PaceSetter, ...]:
    """Return the resources of the path's steps with their shares and what each can save."""
    devices = replayed.program.cluster.devices
    profile = dict(zip(devices.names, devices.of_each(lambda device: device.profile).tolist(), strict=True))
    seconds: dict[tuple[str, str], dict[str, float]] = {}

    def count(kind: str, of: str, where: str, spent_s: float) -> None:
        """Add a time to a resource and a place."""
        places = seconds.setdefault((kind, of), {})
        places[where] = places.get(where, 0.0) + spent_s

    for step in path.steps:
        if step.kind == "coordinate":
            count("coordination", "ranks", "", step.seconds)
            continue
        if step.kind == LAUNCH:
            count("launches", "hosts", step.device, step.seconds)
            continue
        if step.kind == INPUT:
            count("input", "samples", "", step.seconds)
            continue
        if not (step.communicates and step.link_class):
            count("arithmetic", profile.get(step.device, "a device"), step.device, step.seconds)
            continue
        count("bandwidth", step.link_class, step.link, step.wait_s + step.work_s)
        if step.latency_s and _is_of_library(replayed, step):
            assert replayed.program.cluster.library is not None, "or there were no rounds of it"
            count("calls", replayed.program.cluster.library.name, "", step.latency_s)
        elif step.latency_s:
            slowest = _latest_link(replayed, step)
            count("latency", slowest.link_class, slowest.name, step.latency_s)
    interfering = ("arithmetic", "bandwidth") if replayed.program.conditions.interference else ()
    total = sum(spent for places in seconds.values() for spent in places.values()) or 1.0
    rows = []
    for (kind, of), places in seconds.items():
        share = sum(places.values()) / total
        left = 1 - max((use.use for use in _others(busiest, kind, of)), default=0.0)
        rows.append(
            PaceSetter(
                kind=kind,
                of=of,
                share=share,
                where=max(places, key=places.__getitem__),
                saving=max(min(share / 2, left), 0.0),
                precision="about" if kind in interfering else "at most about",
            )
        )
    return tuple(sorted(rows, key=lambda row: (-row.share, -row.saving)))


def _is_of_library(replayed: Replay, step: PathStep) -> bool:
    """Return whether a library's calls and steps are the latency of a step, not that of links."""
    collective = replayed.program.collectives.get(step.task)
    return collective is not None and collective.round.carried is not None


def _others(uses: Sequence[ResourceUse], kind: str, of: str) -> list[ResourceUse]:
    """Return the uses of what does not become better with a resource."""
    return [use for use in uses if use.of != of and not (kind == "arithmetic" and use.of == "board")]


def _latest_link(replayed: Replay, step: PathStep) -> Link:
    """Return the link of the largest latency among those that a transfer or collective uses."""
    program, graph = replayed.program, replayed.program_graph.graph
    task = int(replayed.program_graph.task_of[step.iteration, step.task])
    used = graph.use_resource[graph.use_start[task] : graph.use_start[task + 1]]
    links: list[Link] = [program.cluster.links[i] for i in used.tolist() if i < len(program.cluster.links)]
    is_collective = step.task in program.collectives
    # the bytes of a collective are those of all its messages, about two for each device
    size_bytes = float(program.size_bytes[step.task]) / (2 * len(program.cluster.devices) if is_collective else 1)
    return max(links, key=lambda link: link.latency.at(size_bytes))


def _busiest(uses: Sequence[ResourceUse]) -> tuple[ResourceUse, ...]:
    """Return the first of each kind of links and of devices; uses come with the busiest first."""
    first: dict[str, ResourceUse] = {}
    for use in uses:
        first.setdefault(use.of, use)
    return tuple(sorted(first.values(), key=lambda use: not use.is_link))
