"""Advice for a plan that does not fit: changes that would make it fit, each tried by its memory in program order."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import chain

from groundwork.errors import FittingChange, OrreryError
from planner.cost.cost_model import CostModel
from planner.layouts.configurations import space_of
from planner.layouts.storage import Storage
from planner.lowering.alike_replicas import lower_folded
from planner.lowering.program import Program
from planner.memory.peak_memory import peak_memory_bytes
from planner.strategies.micro_batches import MicroBatching
from planner.strategies.named_rules import NAMED
from planner.strategies.named_strategies import named_strategy, spaces_of
from planner.strategies.recomputation import GATHERS, KEEP_ACTIVATIONS, SEGMENTS, Recompute, recompute_of

_MOST_TASKS = 1_000_000
"""Tasks that are lowered for all attempts together, some seconds; changes that need more are not tried."""
_MOST_TIMES, _MOST_HALVINGS = 64, 12
"""Largest factor of the number of micro-batches, and most halvings of the batch, that are tried."""
_Attempt = tuple[FittingChange, Callable[[], Program]]
"""A change, and a function that lowers the program with it."""
_WHOLE = {
    "sub_batches": 1,
    "sub_batch_from": "",
    "sub_batch_order": "each",
    "update_each": False,
    "stages": None,
    "micro_batches": None,
    "schedule": "",
    "stage_at": (),
    "recompute": "none",
}
"""Fields of a plan's request that are given up for a named strategy, which is tried on the whole batch."""


def fitting_changes(
    model: CostModel,
    program: Program,
    *,
    recompute: Recompute = KEEP_ACTIVATIONS,
    most: int = 3,
) -> tuple[FittingChange, ...]:
    """Return changes that make a program fit, those first that cost least to adopt.

    These are: recomputation; more micro-batches, each forward and backward before the next; both; parameters that
    replicas divide; another named strategy; a smaller batch.  Where all layers are split by samples alone, more devices
    do as well as a smaller batch.

    Args:
        model: Costs from which the program was lowered, with its cluster.
        program: The program that does not fit.
        recompute: Activations that it recomputes already.
        most: Number of changes to name.

    Returns:
        At most so many changes, as options of ``orrery plan``; none where no attempt fits.
    """
    tasks_left, fitting = _MOST_TASKS, list[FittingChange]()
    kinds = chain(_same_batch(model, program, recompute), [_smaller_batches(model, program, recompute)])
    for attempts in kinds:
        for change, lowered in attempts:
            if tasks_left < program.size:
                break
            changed = _tried(lowered)
            tasks_left -= program.size if changed is None else changed.size
            if changed is not None and _fits(changed):
                fitting.append(change)  # of each kind of change the first that fits is enough
                break
        if len(fitting) == most:
            break
    return tuple(fitting)


def _tried(lowered: Callable[[], Program]) -> Program | None:
    """Return the program with a change; None where this batch or cluster cannot have it."""
    try:
        return lowered()
    except OrreryError:
        return None


def _fits(program: Program) -> bool:
    """Return whether a program fits into the memory of its devices."""
    capacity = program.cluster.devices.of_each(lambda device: device.usable_bytes)
    return bool((peak_memory_bytes(program) <= capacity).all())


def _same_batch(model: CostModel, program: Program, recompute: Recompute) -> Iterator[Iterator[_Attempt]]:
    """Yield the kinds of changes that keep the batch, each with its attempts in order."""
    graph, spaces, count = model.graph, [space.in_all for space in program.spaces], len(model.cluster.devices)
    micro_batching = program.micro_batching
    words = f"{SEGMENTS},{GATHERS}" if recompute.gathers else SEGMENTS
    segments = recompute if recompute.ends else recompute_of(graph, words, micro_batching)
    change = partial(lower_folded, model, compressed=program.compressed)
    if not recompute and program.moves_activations.any():
        gathers = recompute_of(graph, GATHERS, micro_batching)
        gathered = partial(change, spaces, micro_batching=micro_batching, recompute=gathers)
        yield iter([(_options(recompute=GATHERS), gathered)])
    if not recompute.ends:
        recomputed = partial(change, spaces, micro_batching=micro_batching, recompute=segments)
        yield iter([(_options(recompute=words), recomputed)])
    for activations, more_options in ((recompute, {}), (segments, {"recompute": words})):
        if activations or not more_options:
            yield (
                (
                    _options(**_fields(more, program), **more_options),
                    partial(change, spaces, micro_batching=more, recompute=activations),
                )
                for more in _more_micro_batches(graph.batch, micro_batching)
            )

    def with_strategy(name: str) -> Program:
        """Lower another named strategy."""
        return change(spaces_of(graph, named_strategy(name, graph, count), count))

    if not model.conditions.storage.divides and _by_samples(program):
        divided = model.on(model.cluster, replace(model.conditions, storage=Storage(zero=3)))
        fully = FittingChange(words="--strategy fsdp", fields={**_WHOLE, "strategy": "fsdp"})
        yield iter([(fully, partial(lower_folded, divided, spaces, compressed=program.compressed))])
    for name in NAMED:
        attempt = FittingChange(words=f"--strategy {name}", fields={**_WHOLE, "strategy": name})
        yield iter([(attempt, partial(with_strategy, name))])


def _options(**fields: object) -> FittingChange:
    """Return a change of fields of a request, each of which is an option of its name."""
    words = [f"--{name.replace('_', '-')} {value}" for name, value in fields.items()]
    return FittingChange(words=" ".join(words), fields=fields)


def _more_micro_batches(batch: int, micro_batching: MicroBatching) -> Iterator[MicroBatching]:
    """Yield two, four, ... times the micro-batches; of a network without any, all layers take them."""
    parts = micro_batching.parts
    while parts < min(batch, _MOST_TIMES * max(micro_batching.parts, 1)):
        parts *= 2
        if batch % parts == 0:
            has_some = micro_batching.parts > 1
            yield replace(micro_batching, parts=parts) if has_some else MicroBatching(parts=parts, first=0)


def _fields(micro_batching: MicroBatching, program: Program) -> dict[str, object]:
    """Return micro-batches as fields of a request: of all layers, as pipelines have them, or of the last ones."""
    if micro_batching.first == 0:
        return {"micro_batches": micro_batching.parts}
    return {"sub_batches": micro_batching.parts, "sub_batch_from": program.graph.layers[micro_batching.first].name}


def _by_samples(program: Program) -> bool:
    """Return whether all layers are split by samples alone."""
    return all((space.degrees[0, 1:] == 1).all() and not space.has_copies for space in program.spaces)


def _smaller_batches(model: CostModel, program: Program, recompute: Recompute) -> Iterator[_Attempt]:
    """Yield smaller batches, the larger first: by eighths of the batch, of its half, of its quarter, and so on."""
    graph, micro_batching, count = model.graph, program.micro_batching, len(model.cluster.devices)
    before = [space.in_all for space in program.spaces]
    unit = micro_batching.parts * math.lcm(*(int(space.degrees[0, 0]) for space in before))
    shares = [graph.batch * eighth // 8 >> half for half in range(_MOST_HALVINGS) for eighth in (7, 6, 5, 4)]

    def with_batch(batch: int) -> Program:
        """Lower the same configurations with another batch."""
        other = model.for_batch(batch)
        rows = zip(before, other.graph.layers, strict=True)
        spaces = [space_of(layer, space.configuration(0), count) for space, layer in rows]
        return lower_folded(
            other, spaces, micro_batching=micro_batching, compressed=program.compressed, recompute=recompute
        )

    for batch in sorted({share // unit * unit for share in shares}, reverse=True):
        if 0 < batch < graph.batch:
            more = f" (or {-(-graph.batch // batch)} times the devices)" if _by_samples(program) else ""
            yield FittingChange(words=f"--batch {batch}{more}", fields={"batch": batch}), partial(with_batch, batch)
