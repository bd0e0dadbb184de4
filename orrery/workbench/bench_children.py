"""Children of a bench: one prices a strategy again, packs a timeline or writes a page, and ends."""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

from groundwork.errors import OrreryError
from hwprofiles.devices.device_graph import DeviceGraph
from orrery.workbench.comparison_view import has_timeline, light_result, timeline_view
from orrery.workbench.processes import BrokeOff, follow_parent, report_of
from orrery.workbench.subject import UPLOAD, BenchSubject
from orrery.workbench.working_folder import WorkingFolder, readable_name
from planner.cost.cost_model import CostModel
from planner.lowering.program import Program
from planner.memory.peak_memory import check_plan_memory, peak_memory_bytes
from planner.plan.comparison import Comparison, StrategyResult
from planner.plan.priced_strategy import PricedStrategy, one_device_s, strategy_ladder, strategy_result
from planner.simulation.memory_over_time import check_replay_fits, replay_that_fits
from planner.simulation.program_replay import replay
from reports.pages.comparison_page import comparison_html

_FORK = get_context("fork")
_LATER = 10
"""Niceness of children whose timeline is not shown, once their ladder is there: the timeline that is comes first."""
ChildMessages = Iterator[tuple[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A child that works for one strategy, or for none."""

    name: str
    process: ForkProcess
    pipe: Connection

    def go_on(self) -> None:
        """Let it say more than its first words: ``priced``."""
        with suppress(OSError):  # it has ended
            self.pipe.send(None)

    def end(self) -> None:
        """End it, whatever it does."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


def start_child(name: str, function: Callable[..., ChildMessages], *arguments: Any) -> Child:
    """Start a function in a child that has all that this process has."""
    ours, theirs = _FORK.Pipe()
    process = _FORK.Process(target=_send_messages, args=(theirs, function, arguments), daemon=True)
    process.start()
    theirs.close()
    return Child(name=name, process=process, pipe=ours)


def _send_messages(pipe: Connection, function: Callable[..., ChildMessages], arguments: tuple[Any, ...]) -> None:
    """Send what a function yields, then that it has ended or why it failed.

    Behind ``priced`` it waits: the ladders of all strategies come before anything else.
    """
    follow_parent()
    with suppress(BrokenPipeError):
        try:
            for kind, values in function(*arguments):
                pipe.send((kind, values))
                if kind == "priced":
                    pipe.recv()
            pipe.send(("ended", None))
        except OrreryError as error:
            pipe.send(("refused", BrokeOff(str(error))))
        except Exception as error:
            pipe.send(("failed", report_of(error)))


def strategy_again(
    model: CostModel, usual: CostModel, result: StrategyResult, known: Program | None, shown: bool
) -> ChildMessages:
    """Price and replay a strategy that was chosen before, as ``orrery simulate`` does with a plan."""
    program = known or result.planned.lowered(model, check_memory=False)
    priced_s, ladder = strategy_ladder(model, result.planned, program)
    yield "priced", {"ladder_s": ladder, "additive_s": priced_s, "simulated_s": list(ladder.values())[-1]}
    if not shown:
        os.nice(_LATER)
    full = replay(program)
    if shown:
        yield "timeline", timeline_view(result.name, full, model.cluster)
    check_plan_memory(program, peak_memory_bytes(program))
    check_replay_fits(full)
    priced = PricedStrategy(
        model=model, name=result.name, planned=result.planned, full=full, additive_s=priced_s, ladder_s=ladder
    )
    yield "result", light_result(strategy_result(priced, one_device_s(usual)))


def timeline_of(model: CostModel, result: StrategyResult, cluster: DeviceGraph) -> ChildMessages:
    """Pack the timeline of a strategy, which is replayed again where only its numbers were kept."""
    if has_timeline(result):
        yield "timeline", timeline_view(result.name, result, cluster)
        return
    yield "timeline", timeline_view(result.name, replay_that_fits(result.planned.lowered(model)), cluster)


def page_of(comparison: Comparison, subject: BenchSubject) -> ChildMessages:
    """Write the page of a comparison, the one that ``orrery compare --out`` writes, into the working folder."""
    html = comparison_html(comparison).encode()
    name = _page_name(subject, html)
    WorkingFolder(Path()).write("pages", name, ".html", html)
    yield "page", f"{name}.html"


def _page_name(subject: BenchSubject, html: bytes) -> str:
    """Return the name of a page: of what it is, and of its own for every content.

    Such as ``vgg16-fdr-32x3-768-link-fdr-bandwidth-factor-0-5-1f0c6a2b3d``.
    """
    words = [subject.model.removeprefix(UPLOAD), subject.cluster.removeprefix(UPLOAD), str(subject.batch)]
    words += [subject.dtype] * (subject.dtype != "float32") + [subject.gradient_sync or ""]
    words += [f"{name} {value}" for name, value in subject.edits.items()]
    return readable_name("-".join(words), html)
