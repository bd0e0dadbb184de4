"""Speedups that the 8-bit paper predicts, beside ours by several methods.

The closed form takes the paper's own inputs: Table 4's times, Table 5's sizes and latencies, and for Table 7 the
single passes of Table 6 as printed.  Formulas lost in the text are those of ``studies.eight_bit``.  The simulation
replays messages on the links that the text gives (``studies.reproduce.eight_bit_simulated``); where Table 6 and
Sec. 2.4 differ in what overlaps, Sec. 2.4's schedule has rows of its own.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from groundwork.progress import Progress
from hwprofiles.catalogue.cluster_catalogue import load_cluster
from hwprofiles.devices.latency import Latency
from studies.eight_bit.machine import machine_speedup, machine_sync_s
from studies.eight_bit.many_machines import (
    COMPRESS_S,
    DECOMPRESS_S,
    exposed_s,
    gradient_sync_s,
    scheme_exposed_s,
    single_pass_s,
)
from studies.eight_bit.paper_tables import (
    BASELINES_S,
    BITS,
    DEVICES_PER_MACHINE,
    FEATURES,
    GRADIENT_S,
    MACHINES,
    PAPER_SAMPLES,
    PASS_BYTES_PER_S,
    linear_layers,
    machine_gradient_s,
    pass_table,
    passes_of,
    product_s,
    read_table,
    row_of,
)
from studies.reproduce.eight_bit_simulated import as_written, simulated
from studies.reproduce.paper_claims import Claim, ComputedValue
from studies.reproduce.rows import PaperRow

_Result = tuple[float, str]
"""Our value in the unit of the claim, and a note."""

MIB, MILLI = 2.0**20, 1e-3
TEXT_BYTES_PER_S = 6e9
"""Bandwidth of FDR InfiniBand, as A.2.1 says."""

Method = Callable[[Claim], _Result | None]
"""Function that computes the value of a claim; None where the method does not apply to it."""


def eight_bit_rows(progress: Progress | None = None) -> Iterator[PaperRow]:
    """Yield every value as a row."""
    for value in eight_bit_values(progress):
        yield value.row


def eight_bit_values(progress: Progress | None = None) -> Iterator[ComputedValue]:
    """Yield our values for each claim, in the paper's order of tables, by each method that applies to it."""
    everything = claims()
    for done, claim in enumerate(everything):
        if progress:
            progress(claim.text, done, len(everything))
        for name, method in CLAIM_METHODS.items():
            result = method(claim)
            if result:
                yield ComputedValue(claim, name, *result)


def claims() -> list[Claim]:
    """Return the printed values: Table 1 and claims of the text, then Tables 3, 6 and 7."""
    of_text = [
        Claim(line["source"], line["claim"], tuple(line["key"].split()), line["value"], line["unit"])
        for line in read_table("claims")
    ]
    syncs = [
        Claim("Table 3", f"{line['item']}, {bits}-bit, sync time", ("sync", line["item"], str(bits)), printed, "ms")
        for line in read_table("table3_communication")
        for bits in BITS
        if (printed := line[f"sync_{bits}bit_ms"])
    ]
    lines = read_table("table6_and_7")
    times = [claim for line in lines for claim in _times_of(line)]
    return [*of_text, *syncs, *times, *(claim for line in lines for claim in _speedups_of(line))]


def _times_of(line: dict[str, str]) -> Iterator[Claim]:
    """Yield the claims of one row of Table 6."""
    batch = line["sub_batch"]
    yield Claim("Table 6", f"sub-batch {batch}, forward", ("forward", batch), line["forward_time_ms"], "ms")
    kinds = {"single_pass": "single pass", "full_pass_overlap": "full pass with overlap", "total": "total"}
    for column, text in kinds.items():
        for bits in BITS:
            key = (column, batch, str(bits))
            yield Claim("Table 6", f"sub-batch {batch}, {bits}-bit, {text}", key, line[f"{column}_{bits}bit_ms"], "ms")


def _speedups_of(line: dict[str, str]) -> Iterator[Claim]:
    """Yield the claims of one row of Table 7."""
    batch = line["sub_batch"]
    for kernels in BASELINES_S:
        for bits in BITS:
            source = "Tables 1 and 7" if kernels == "nervana" else "Table 7"
            text = f"96 GPUs, sub-batch {batch}, {bits}-bit, {kernels} kernels"
            key = ("speedup", batch, str(bits), kernels)
            yield Claim(source, text, key, line[f"speedup_{kernels}_{bits}bit"], "x")


def closed_form(claim: Claim) -> _Result | None:
    """Return the value of the paper's formulas with the paper's inputs."""
    kind, *words = claim.key
    return CLOSED_FORMS[kind](*words)


def _node(which: str) -> _Result:
    layers, gradient_s = linear_layers(), machine_gradient_s()
    kernels = "convnet2" if which == "convnet2" else "nervana"
    speedups = machine_speedup(BASELINES_S[kernels], layers, gradient_s)
    if which == "convnet2":
        return float(speedups[0]), (
            f"baseline 17 s / 96; with 104.1 ms x 1.75, as the text compares the kernels, "
            f"{machine_speedup(0.1041 * 1.75, layers, gradient_s)[0]:.2f}"
        )
    note = "the text's saving of 3.16 ms is that of one pass through the linear layers; the printed speedups need four"
    if which == "8":
        mixed = replace(layers, input_sync_s=layers.input_sync_s.mean())  # first inputs in 8 bits, last errors in 32
        note = f"if the last errors stayed in 32 bits {machine_speedup(0.1041, mixed, gradient_s)[1]:.2f}; {note}"
    return float(speedups[BITS.index(int(which))]), note


def _linear(which: str) -> _Result:
    layers = linear_layers()
    return 1e3 * (layers.alone_s if which == "alone" else layers.parallel_s), "sum of the rows"


def _all_parameters() -> _Result:
    time_s = float(machine_sync_s(4 * 60e6, bytes_per_s=7e9))
    return 1e3 * time_s, "4 messages of 240 MB at 7 GB/s; the paper uses their 0.223 GiB as if it were GB"


def _gradient() -> _Result:
    line = read_table("table5_infiniband")[0]
    size, latency_s = 1024 * float(line["size_32bit_kb"]), MILLI * float(line["latency_32bit_ms_per_msg"])
    whole_s = gradient_sync_s(size, latency_s, MACHINES, bytes_per_s=TEXT_BYTES_PER_S)
    return 1e3 * float(gradient_sync_s(size, latency_s, MACHINES)), (
        f"latencies and PCIe alone; with the text's time on InfiniBand at 6 GB/s added {1e3 * whole_s:.1f}"
    )


def _sync(item: str, bits: str) -> _Result:
    line = next(line for line in read_table("table3_communication") if line["item"] == item)
    size, gradient = MIB * float(line["transfer_size_mb"]), item.endswith("gradient")
    ours_s = (2 if gradient else 1) * float(machine_sync_s(size * int(bits) / 32))
    if bits == "8":
        codec_s = size / 4 * (COMPRESS_S + 3 * DECOMPRESS_S)
        return 1e3 * ours_s, (
            f"at 5.25 GB/s; the printed times are 4 x (31 us + size / 4 GB/s); compressing one "
            f"message and decompressing three takes {1e3 * codec_s:.2f} more by Sec. 3.2"
        )
    notes = {
        "conv1 gradient": "8 messages; the printed size is twice a fourth of the gradient",
        "fc": "4 messages; the printed size is that of the whole activation, not a fourth as the caption says",
    }
    note = notes.get(item) or (notes["fc"] if item.startswith("fc") else f"{8 if gradient else 4} messages")
    return 1e3 * ours_s, f"{note}; 5.25 GB/s"


def _at(batch: str, bits: str) -> tuple[int, int]:
    """Return the row and the column of a value in the arrays of ``pass_table``."""
    return row_of(batch), BITS.index(int(bits))


def _linear_s() -> float:
    return linear_layers().alone_s


def _forward(batch: str) -> _Result:
    passes = passes_of(batch)
    return 1e3 * passes * _linear_s(), f"{passes} x 6.5 ms, the time of 128 samples, whatever the sub-batch"


def _single(batch: str, bits: str) -> _Result:
    table, (i, b) = pass_table(), _at(batch, bits)
    size, latency_s, printed_s = (
        float(column[i, b]) for column in (table.message_bytes, table.latency_s, table.single_pass_s)
    )
    ours_s, text_s = (
        float(single_pass_s(size, latency_s, rate, MACHINES)) for rate in (PASS_BYTES_PER_S, TEXT_BYTES_PER_S)
    )
    implied_s = printed_s / (MACHINES - 1) - size / PASS_BYTES_PER_S
    note = f"31 messages at 4.5 GB/s; at the text's 6 GB/s {1e3 * text_s:.3g}"
    if abs(ours_s / printed_s - 1) > 0.05:
        like = "as in the row above" if batch == "2048" else "ten times Table 5's"
        note += f"; the printed value needs a latency of {1e3 * implied_s:.2g} ms, {like}"
    return 1e3 * ours_s, note


def _exposed_s(batch: str, bits: str, pass_s: float | None = None) -> float:
    """Return the transfers that nothing hides, from Table 6's single pass or another one."""
    table, (i, b) = pass_table(), _at(batch, bits)
    single = float(table.single_pass_s[i, b]) if pass_s is None else pass_s
    return float(exposed_s(single, product_s(), MACHINES))


def _overlap(batch: str, bits: str) -> _Result:
    table, (i, b) = pass_table(), _at(batch, bits)
    note = f"31 times the time beyond 1.3 ms, whatever the number of sub-batches, here {table.passes[i]}"
    if table.single_pass_s[i, b] < product_s():
        note = "the product of 1.3 ms hides all but one pass"
    if (batch, bits) == ("12288", "32"):
        note += "; the printed value subtracts nothing"
    return 1e3 * _exposed_s(batch, bits), note


def _total(batch: str, bits: str) -> _Result:
    return 1e3 * (passes_of(batch) * _linear_s() + _exposed_s(batch, bits)), "sum of forward time and full pass"


def _speedup(batch: str, bits: str, kernels: str) -> _Result:
    ours = _speedup_of(batch, kernels, _exposed_s(batch, bits))
    by_table_5 = _speedup_of(batch, kernels, _exposed_s(batch, bits, MILLI * _single(batch, bits)[0]))
    notes = ["printed as sub-batch 2056"] if batch == "2048" else []
    if abs(by_table_5 / ours - 1) > 0.05:
        notes.append(f"with single passes from Table 5 {by_table_5:.3g}")
    if bits == "32":
        scheme_s = scheme_exposed_s(_pass_by_links_s(batch, 4), _linear_s(), passes_of(batch))
        notes.append(f"with the overlap of Sec. 2.4 {_speedup_of(batch, kernels, float(scheme_s)):.3g}")
    else:
        pass_s, devices = _pass_by_links_s(batch, 1), MACHINES * DEVICES_PER_MACHINE
        quarter = _speedup_of(batch, kernels, float(exposed_s(pass_s, product_s(), MACHINES)))
        codec_s = PAPER_SAMPLES * FEATURES * (COMPRESS_S + (devices - 1) * DECOMPRESS_S)
        scheme_s = codec_s + scheme_exposed_s(pass_s, _linear_s(), passes_of(batch))
        scheme = _speedup_of(batch, kernels, float(scheme_s))
        notes.append(f"with 8-bit messages of a quarter, not an eighth, {quarter:.3g}")
        notes.append(f"with the overlap of Sec. 2.4, a quarter and the times of Sec. 3.2, {scheme:.3g}")
    return ours, "; ".join(notes)


def _speedup_of(batch: str, kernels: str, transfers_s: float) -> float:
    """Return the speedup with a time of the transfers that nothing hides."""
    whole_s = BASELINES_S[kernels]
    iteration_s = whole_s - _linear_s() + GRADIENT_S + passes_of(batch) * _linear_s() + transfers_s
    return MACHINES * DEVICES_PER_MACHINE * whole_s / iteration_s


@cache
def _infiniband() -> Latency:
    """Return the latency of a message between two machines, both hops: Table 5 by size, as in the cluster's file."""
    hop = next(link.latency for link in load_cluster("fdr-32x3").links if link.link_class == "fdr")
    return Latency(hop.sizes_bytes, tuple(2 * second for second in hop.seconds))


def _pass_by_links_s(batch: str, element_bytes: int) -> float:
    """Return a single pass with a message's size from its elements, and its latency from Table 5 by size."""
    size = float(batch) * FEATURES * element_bytes / MACHINES
    return float(single_pass_s(size, _infiniband().at(size), PASS_BYTES_PER_S, MACHINES))


CLOSED_FORMS: dict[str, Callable[..., _Result]] = {
    "node": _node,
    "linear": _linear,
    "all_parameters": _all_parameters,
    "gradient": _gradient,
    "sync": _sync,
    "forward": _forward,
    "single_pass": _single,
    "full_pass_overlap": _overlap,
    "total": _total,
    "speedup": _speedup,
}
"""Function that recomputes a claim, by the first word of its key."""

CLAIM_METHODS: dict[str, Method] = {
    "closed form": closed_form,
    "simulation": lambda claim: simulated(claim.key),
    "simulation of Sec. 2.4": lambda claim: as_written(claim.key),
}
"""Methods that give the rows of a claim, in order; another method is another entry."""
