"""One process of a probe: ``python -m executor.probe.probe_rank REQUEST`` with its place in the environment."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

from executor.probe.codec_probe import CodingProbe, CodingRow
from executor.probe.device_probe import DeviceFacts, measure_device
from executor.probe.layer_probe import LayerProbe
from executor.probe.link_probe import MeasuredLinks, machine, measure_links
from executor.probe.measured_rows import ProbeRow, over_ranks
from executor.probe.probe_request import ANSWER, Portion, ProbeAnswer, ProbeRequest, portions_of, read_request, write
from executor.processes import RankEnvironment, RankState, RankStatus, local_ranks, process_group, serve, threads_of
from executor.runtime import ComputeDevice, device_of

__all__ = ["measure"]


def measure(request: ProbeRequest, where: RankEnvironment, status: RankStatus) -> ProbeAnswer | None:
    """Measure as one rank; all ranks compute the same parts at the same time.

    Returns:
        What all measured, on rank 0; elsewhere None.
    """
    torch.set_num_threads(threads_of(request.threads, where.ranks))
    device = device_of(request.device, where.local_rank, local_ranks=local_ranks(where))
    work = portions_of(request)
    with process_group(where, device):
        machines = [""] * where.ranks
        dist.all_gather_object(machines, machine())
        dist.barrier()
        facts = measure_device(device, processes=machines.count(machine()))
        rows: list[ProbeRow] = []
        for number, portion in enumerate(work):
            status.step(number)
            rows += _rows(portion, request, device, status)
        status.step(len(work))
        coding = CodingProbe(request.codings, device)
        status.at(-1, RankState.COMPUTING)
        coding.warm_up()
        _until_known(coding, request, device, status)
        links = measure_links(device, watch=lambda: status.at(-1, RankState.COMPUTING))
        return _joined(rows, coding.rows() if request.codings else [], facts, links, where.rank)


def _rows(portion: Portion, request: ProbeRequest, device: ComputeDevice, status: RankStatus) -> list[ProbeRow]:
    """Samples of a portion until all ranks know its time well enough."""

    def computing(part: int) -> None:
        status.at(portion.first + part, RankState.COMPUTING)

    probe = LayerProbe(portion.graph, portion.parts, device, watch=computing)
    probe.warm_up(computing)
    _until_known(probe, request, device, status, lambda: probe.sample(computing))
    names = {layer.name: layer.measured_name for layer in portion.graph.layers}
    return [replace(row, layers=tuple(names[name] for name in row.layers)) for row in probe.rows()]


def _until_known(
    probe: LayerProbe | CodingProbe, request: ProbeRequest, device: ComputeDevice, status: RankStatus,
    sample: Callable[[], None] | None = None,
) -> None:  # fmt: skip
    """Take samples on all ranks at once until all of them know their sum well enough."""
    for number in range(request.most):
        status.at(-1, RankState.WAITING)
        dist.barrier()
        (sample or probe.sample)()
        worst = torch.tensor(probe.sums_s.uncertainty, device=device.torch_device)
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        if number + 1 >= request.least and float(worst) < request.uncertainty:
            break


def _joined(
    rows: list[ProbeRow], coding: list[CodingRow], facts: DeviceFacts, links: MeasuredLinks, rank: int
) -> ProbeAnswer | None:
    mine = rows, coding
    ranks: list[tuple[list[ProbeRow], list[CodingRow]]] | None = [mine] * dist.get_world_size() if rank == 0 else None
    dist.gather_object(mine, ranks)
    if ranks is None:
        return None
    layers, codings = zip(*ranks, strict=True)
    return ProbeAnswer(rows=tuple(over_ranks(layers)), device=facts, links=links, coding=tuple(over_ranks(codings)))


def _main(arguments: Sequence[str]) -> NoReturn:
    """Run as the process of one rank, which this ends."""
    path = Path(arguments[0])

    def work(where: RankEnvironment, status: RankStatus) -> None:
        answer = measure(read_request(path), where, status)
        if answer is not None:
            write(answer, path.with_name(ANSWER))

    serve(work)


if __name__ == "__main__":
    _main(sys.argv[1:])
