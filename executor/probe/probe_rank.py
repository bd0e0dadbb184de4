"""One process of a probe: ``python -m executor.probe.probe_rank JOB``, with its rank in the environment."""

from collections.abc import Callable

import torch
import torch.distributed as dist

from executor.probe.codec_probe import CodecProbe, CodecRow
from executor.probe.device_probe import DeviceFacts, measure_device
from executor.probe.layer_probe import LayerProbe
from executor.probe.link_probe import MeasuredLinks, machine, measure_links
from executor.probe.measured_rows import ProbeRow, over_ranks
from executor.probe.probe_request import Portion, ProbeRequest, ProbeResult, portions_of
from executor.probe.probe_settings import ProbeSettings
from executor.rendezvous.all_ranks import of_all_ranks
from executor.rendezvous.rank_environment import RankEnvironment, local_ranks
from executor.runtime.devices import ComputeDevice, device_of
from executor.supervision.launcher import threads_of
from executor.supervision.rank_work import process_group, serve_job
from executor.supervision.status_board import RankState, RankStatus


def measure(request: ProbeRequest, where: RankEnvironment, status: RankStatus) -> ProbeResult | None:
    """Measure as one rank; all ranks compute the same parts at the same time.

    Returns:
        Measurements of all ranks, on rank 0; elsewhere None.
    """
    settings = request.settings
    torch.set_num_threads(threads_of(settings.threads, where.ranks))
    device = device_of(settings.device, where.local_rank, local_ranks=local_ranks(where))
    work = portions_of(request)
    with process_group(where, device):
        machines = of_all_ranks(machine())
        dist.barrier()
        facts = measure_device(device, processes=machines.count(machine()))
        rows: list[ProbeRow] = []
        for number, portion in enumerate(work):
            status.step(number)
            rows += _rows(portion, settings, device, status)
        status.step(len(work))
        codecs = CodecProbe(request.codec_types, device)
        status.at(-1, RankState.COMPUTING)
        codecs.warm_up()
        _sample_until_known(codecs, settings, device, status)
        links = measure_links(device, watch=lambda: status.at(-1, RankState.COMPUTING))
        return _gathered(rows, codecs.rows() if request.codec_types else [], facts, links, where.rank)


def _rows(portion: Portion, settings: ProbeSettings, device: ComputeDevice, status: RankStatus) -> list[ProbeRow]:
    """Sample a portion until all ranks know its time well enough."""

    def computing(part: int) -> None:
        status.at(portion.first + part, RankState.COMPUTING)

    probe = LayerProbe(portion.graph, portion.parts, device, watch=computing)
    probe.warm_up(computing)
    _sample_until_known(probe, settings, device, status, lambda: probe.sample(computing))
    return probe.rows()


def _sample_until_known(
    probe: LayerProbe | CodecProbe,
    settings: ProbeSettings,
    device: ComputeDevice,
    status: RankStatus,
    sample: Callable[[], None] | None = None,
) -> None:
    """Take samples on all ranks at once until all of them know their sum well enough."""
    for number in range(settings.repetitions):
        status.at(-1, RankState.WAITING)
        dist.barrier()
        (sample or probe.sample)()
        # The same decision on all ranks: that of the one that knows least.
        worst = torch.tensor(probe.sums_s.uncertainty, device=device.torch_device)
        dist.all_reduce(worst, dist.ReduceOp.MAX)
        if number + 1 >= settings.least_samples and float(worst) < settings.uncertainty:
            break


def _gathered(
    rows: list[ProbeRow], codecs: list[CodecRow], facts: DeviceFacts, links: MeasuredLinks, rank: int
) -> ProbeResult | None:
    """Bring the samples of all ranks to rank 0, and take their medians there."""
    mine = rows, codecs
    ranks: list[tuple[list[ProbeRow], list[CodecRow]]] | None = [mine] * dist.get_world_size() if rank == 0 else None
    dist.gather_object(mine, ranks)
    if ranks is None:
        return None
    layer_rows, codec_rows = zip(*ranks, strict=True)
    return ProbeResult(
        rows=tuple(over_ranks(layer_rows)), device=facts, links=links, codecs=tuple(over_ranks(codec_rows))
    )


if __name__ == "__main__":
    serve_job(measure)
