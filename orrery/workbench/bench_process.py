"""One bench: a process that compares strategies, keeps them, and prices them again after every change.

A request says all that its result depends on; what a bench holds only saves it from comparing again.  After a change
each strategy is priced and replayed in a child of its own, forked with everything that the bench has loaded; a newer
request ends the children of the one before.
"""

import gc
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

from groundwork.errors import ConfigError, OrreryError
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.device_graph import DeviceGraph
from orrery.workbench.bench_children import Child, page_of, start_child, strategy_again, timeline_of
from orrery.workbench.comparison_view import comparison_view, ladder_view, light_result, partial_comparison
from orrery.workbench.processes import BrokeOff, follow_parent, report_of
from orrery.workbench.subject import BenchSubject, loaded_cluster, loaded_graph
from planner.graph.computation_graph import ComputationGraph
from planner.lowering.changed_links import relinked
from planner.lowering.program import Program
from planner.models.registry import load_model
from planner.plan.compare_strategies import compare
from planner.plan.comparison import Comparison, StrategyResult
from planner.plan.lowered_plan import CostModels
from planner.plan.make_plan import request_for
from planner.plan.plan_request import PlanRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """What a bench is to do; a new one ends the one before."""

    job: str
    kind: str
    """``compare``, ``reprice`` (with the changes of the subject), ``timeline``, ``page`` or ``stop``."""
    subject: BenchSubject
    compared: BenchSubject
    """Comparison that chose the strategies: the subject with the changes that it had then, and without a price."""
    is_held: bool = False
    """True where that comparison is the one that the bench made last."""
    shown: str = ""


def bench(pipe: Connection, folder: str) -> None:
    """Serve requests until the other end of a pipe is closed."""
    follow_parent()
    os.chdir(folder)
    with suppress(OrreryError):  # loads the compiled kernels
        compare(load_model("lenet5", batch=8), load_cluster("titanx-4"), ["data", "owt"])
    held, children = _Computation(pipe), list[Child]()
    request: BenchRequest | None = None
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            ready = wait([pipe, *(child.pipe for child in children)])
            if pipe in ready:
                for child in children:
                    child.end()
                request, children = pipe.recv(), []
                assert request is not None
                children = _start_work(held, request)
                continue
            assert request is not None
            children = _take_messages(held, request, children, ready)
    for child in children:
        child.end()


def _start_work(held: "_Computation", request: BenchRequest) -> list[Child]:
    """Begin what a request asks for; return the children that work on it."""
    try:
        if request.kind == "compare" or not (request.is_held and held.has_comparison):
            held.compare(request)
            if request.kind == "compare":
                held.send_event(request, "done", None)
            held.prepare()
        children = held.children_of(request) if request.kind != "compare" else []
        if request.kind == "reprice" and not children:  # all that is asked for is known
            held.finish(request)
        return children
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        held.send_event(request, "failed", report_of(error).message)
        return []


def _take_messages(held: "_Computation", request: BenchRequest, children: list[Child], ready: list[Any]) -> list[Child]:
    """Take in what children say; return those that still work."""
    for child in [each for each in children if each.pipe in ready]:
        try:
            kind, values = child.pipe.recv()
        except (EOFError, OSError):
            child.process.join()
            what = f"its process ended ({child.process.exitcode}), perhaps for want of memory"
            kind, values = "failed", BrokeOff(f"{child.name or 'the page'}: {what}")
        if kind == "failed" or (kind == "refused" and not child.name):
            for each in children:
                each.end()
            held.send_event(request, "failed", values.message)
            return []
        held.take_message(request, child.name, kind, values)
        if kind in ("ended", "refused"):
            child.end()
            children = [each for each in children if each is not child]
    held.show_ladder(request)
    if held.priced >= {each.name for each in children}:
        for each in children:
            each.go_on()
        held.priced.clear()
    if not children:
        held.finish(request)
    return children


class _Computation:
    """Comparison that a bench holds, and the same strategies on the cluster as it is now."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._found: Comparison | None = None
        self._graph: ComputationGraph
        self._cluster: DeviceGraph
        self._compared: DeviceGraph
        """The cluster that was compared."""
        self._models: CostModels
        self._requests: dict[str, PlanRequest] = {}
        """Plans by their texts."""
        self._usual: PlanRequest
        """What all of them have in common."""
        self._edits: dict[str, str]
        """Changes of what is priced now: those of what was compared, or others."""
        self._first: CostModels
        """Prices on the cluster that was compared."""
        self._programs: dict[str, Program] = {}
        """Strategies lowered on that cluster."""
        self._results: dict[str, StrategyResult] = {}
        self._refused: dict[str, str] = {}
        self.priced: set[str] = set()
        """Strategies whose children wait."""
        self._fresh: list[str] = []
        """Strategies that were priced since the ladder was shown."""

    @property
    def has_comparison(self) -> bool:
        """Return whether there is a comparison to go on from."""
        return self._found is not None

    def send_event(self, request: BenchRequest, kind: str, values: Any) -> None:
        """Send an event of a request."""
        self._pipe.send((request.job, kind, values))

    def compare(self, request: BenchRequest) -> None:
        """Compare strategies; tell of progress and, where that is what is asked for, of every result as it arrives."""
        subject = request.compared
        self._edits = subject.edits
        self._found = None  # also where this comparison fails: what follows would mix both
        self._graph, self._cluster = loaded_graph(subject), loaded_cluster(subject)
        self._compared = self._cluster
        self._first = self._models = CostModels(self._graph, self._cluster)
        self._results, self._refused, self._programs = {}, {}, {}
        names = list(dict.fromkeys(subject.strategies))
        self._set_requests(subject)

        def arrived(result: StrategyResult) -> None:
            self._results = {**self._results, result.name: result}
            if request.kind == "compare":
                self.send_event(
                    request, "table", comparison_view(self._now(names).priced(request.subject.price_of_device))
                )

        self._found = compare(
            self._graph,
            self._cluster,
            names,
            gradient_sync=subject.gradient_sync,
            dtype=subject.dtype,
            progress=lambda label, done, total: self.send_event(request, "progress", (label, done, total)),
            arrived=arrived,
        )
        self._results = {each.name: each for each in self._found.strategies}
        self._refused = dict(self._found.refused)
        self.send_event(request, "compared", None)
        if request.kind == "compare":
            self._send_all(request, self._found)

    def _send_all(self, request: BenchRequest, complete: Comparison) -> None:
        """Tell of all numbers, and whether the strategies were chosen for the cluster as it is now."""
        view = comparison_view(complete.priced(request.subject.price_of_device))
        searched = request.subject.edits == request.compared.edits
        self.send_event(request, "table", {**view, "searched": searched, "complete": True})

    def prepare(self) -> None:
        """Do what changes to come would each have to do again: what does not depend on links is then known."""
        for each in self._found.strategies if self._found else ():
            with suppress(OrreryError):
                model = self._first.of(self._requests[each.name])
                program = each.planned.lowered(model, check_memory=False)
                each.planned.additive_s(model, program)
                if each.planned.gradient_sync_order == "end":  # others follow from the links
                    self._programs[each.name] = program
        gc.collect()
        gc.freeze()  # children then share what is here

    def _set_requests(self, subject: BenchSubject) -> None:
        """Set the requests of all plans, by their texts, and of what they have in common."""
        options: dict[str, Any] = {"gradient_sync": subject.gradient_sync, "dtype": subject.dtype}
        for text in subject.strategies:
            self._requests[text] = request_for(self._graph, self._cluster, strategy=text, **options)
        self._usual = request_for(self._graph, self._cluster, strategy="data", **options)

    def _now(self, order: list[str]) -> Comparison:
        """Return the comparison as far as it has come."""
        partial = partial_comparison(self._graph, self._cluster, list(self._results.values()), order)
        return replace(partial, refused=self._refused)

    def children_of(self, request: BenchRequest) -> list[Child]:
        """Start the children that a request needs.

        Raises:
            ConfigError: The strategies do not fit the changed cluster, or the one to show is not among them.
        """
        found, shown = self._found, request.shown
        assert found is not None
        if request.kind == "page":
            return [start_child("", page_of, found.priced(request.subject.price_of_device), request.subject)]
        if request.subject.edits == request.compared.edits:
            self._take_back(request.compared, found)
            if request.kind == "reprice":
                return []
        elif request.kind == "reprice" or request.subject.edits != self._edits:
            self._change(request.subject, found)
        if request.kind == "timeline":
            if shown not in self._results:
                raise ConfigError(f"strategy must be one that was compared and fits, got {shown!r}")
            model = self._models.of(self._requests[shown])
            return [start_child(shown, timeline_of, model, self._results[shown], self._cluster)]
        rows = sorted(found.strategies, key=lambda each: -each.tasks)  # the largest first, for they take longest
        usual = self._models.of(self._usual)
        return [
            start_child(
                each.name,
                strategy_again,
                self._models.of(self._requests[each.name]),
                usual,
                each,
                self._relinked(each.name),
                each.name == shown,
            )
            for each in rows
        ]

    def _take_back(self, compared: BenchSubject, found: Comparison) -> None:
        """Go back to the cluster that was compared, whose results are known."""
        self._edits, self._cluster, self._models = compared.edits, self._compared, self._first
        self._results = {each.name: each for each in found.strategies}
        self._refused = dict(found.refused)

    def _change(self, subject: BenchSubject, found: Comparison) -> None:
        """Go over to other changes of the cluster; until it is priced again, a strategy is shown as it was.

        Raises:
            ConfigError: They add or remove devices.
        """
        cluster = loaded_cluster(subject)
        if [each.name for each in cluster.devices] != list(found.devices):
            raise ConfigError("this change adds or removes devices; press Compare, which chooses the strategies anew")
        self._edits, self._cluster = subject.edits, cluster
        self._models = CostModels(self._graph, cluster, self._first)
        self._set_requests(subject)
        network = self._models.of(self._usual).network
        # what all children need of the routes is searched for once
        _ = network.rank
        if network.has_tables:
            _ = network.forward
        self._results = {each.name: light_result(self._results.get(each.name, each)) for each in found.strategies}
        self._refused = dict(found.refused)
        self.priced, self._fresh = set(), []

    def _relinked(self, name: str) -> Program | None:
        """Return the program of a strategy on the cluster as it is now, where that needs no lowering."""
        program = self._programs.get(name)
        request = self._requests[name]
        return relinked(program, self._first.of(request), self._models.of(request)) if program else None

    def take_message(self, request: BenchRequest, name: str, kind: str, values: Any) -> None:
        """Take in and pass on what the child of a strategy says."""
        if kind in ("timeline", "page"):
            self.send_event(request, kind, values)
        elif kind == "priced":
            self._results[name] = replace(self._results[name], **values)
            self.priced.add(name)
            self._fresh.append(name)
        elif kind == "result":
            self._results[name] = values
        elif kind == "refused":
            self._results.pop(name, None)
            self._refused[name] = values.message
            self.send_event(request, "refused", {"name": name, "reason": values.message})

    def show_ladder(self, request: BenchRequest) -> None:
        """Tell of the ladder, if a strategy was priced since."""
        if self._fresh:
            self.send_event(request, "ladder", {"names": self._fresh, **ladder_view(self._now(list(self._results)))})
            self._fresh = []

    def finish(self, request: BenchRequest) -> None:
        """Tell that a request is done, with all numbers where they have changed."""
        if request.kind == "reprice":
            if not self._results:
                reasons = "; ".join(f"{name}: {reason}" for name, reason in self._refused.items())
                self.send_event(request, "failed", f"no strategy runs with this change: {reasons}")
                return
            assert self._found is not None
            taken_back = request.subject.edits == request.compared.edits
            self._send_all(request, self._found if taken_back else self._now(list(self._results)))
        self.send_event(request, "done", None)
