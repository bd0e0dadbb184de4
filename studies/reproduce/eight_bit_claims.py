"""The 8-bit paper's predicted speedups, beside what each way of ours says.

How it is read.  The closed form takes the paper's own inputs: Table 4's times, Table 5's sizes and latencies, and
for Table 7 the single passes of Table 6 as printed.  Formulas lost in the text are those of ``planner.eight_bit``.
The simulation replays messages on the links that the text gives (``studies.reproduce.eight_bit_simulated``); where
Table 6 and Sec. 2.4 do not overlap alike, Sec. 2.4's schedule has rows of its own.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache

from hwprofiles import Progress
from hwprofiles.catalogue import load_cluster
from hwprofiles.devices import Latency
from studies.eight_bit import (
    BASELINES_S,
    BITS,
    DEVICES_PER_MACHINE,
    EIGHT_BIT_COST,
    FLOAT32_COST,
    GRADIENT_S,
    MACHINES,
    PASS_BYTES_PER_S,
    Interpretation,
    NumberCost,
    Setting,
    alexnet,
    exposed_s,
    gradient_sync_s,
    linear_layers,
    machine_gradient_s,
    machine_speedup,
    machine_sync_s,
    pass_table,
    read_table,
    single_pass_s,
    sub_batch_times,
)
from studies.reproduce.answers import Claim, ComputedValue
from studies.reproduce.eight_bit_simulated import as_written, simulated
from studies.reproduce.rows import PaperRow

__all__ = ["Claim", "Way", "claims", "eight_bit_answers", "eight_bit_rows"]

_Answer = tuple[float, str]
"""Our value in the unit of the claim, and what is to be said about it."""

MIB, MILLI = 2.0**20, 1e-3
TEXT_BYTES_PER_S = 6e9
"""Of FDR InfiniBand, as A.2.1 says."""


Way = Callable[[Claim], _Answer | None]
"""How a claim is recomputed; None where the way says nothing about it."""


def eight_bit_rows(progress: Progress | None = None) -> Iterator[PaperRow]:
    """Every answer as a row."""
    for found in eight_bit_answers(progress):
        yield found.row


def eight_bit_answers(progress: Progress | None = None) -> Iterator[ComputedValue]:
    """For each claim, in the paper's order of tables, the answer of each way that speaks of it."""
    everything = claims()
    for done, claim in enumerate(everything):
        if progress:
            progress(claim.text, done, len(everything))
        for name, way in _WAYS.items():
            answer = way(claim)
            if answer:
                yield ComputedValue(claim, name, *answer)


def claims() -> list[Claim]:
    """What is printed: Table 1 and claims of the text, then Tables 3, 6 and 7."""
    told = [
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
    return [*told, *syncs, *times, *(claim for line in lines for claim in _speedups_of(line))]


def _times_of(line: dict[str, str]) -> Iterator[Claim]:
    batch = line["sub_batch"]
    yield Claim("Table 6", f"sub-batch {batch}, forward", ("forward", batch), line["forward_time_ms"], "ms")
    kinds = {"single_pass": "single pass", "full_pass_overlap": "full pass with overlap", "total": "total"}
    for column, text in kinds.items():
        for bits in BITS:
            key = (column, batch, str(bits))
            yield Claim("Table 6", f"sub-batch {batch}, {bits}-bit, {text}", key, line[f"{column}_{bits}bit_ms"], "ms")


def _speedups_of(line: dict[str, str]) -> Iterator[Claim]:
    batch = line["sub_batch"]
    for kernels in BASELINES_S:
        for bits in BITS:
            source = "Tables 1 and 7" if kernels == "nervana" else "Table 7"
            text = f"96 GPUs, sub-batch {batch}, {bits}-bit, {kernels} kernels"
            key = ("speedup", batch, str(bits), kernels)
            yield Claim(source, text, key, line[f"speedup_{kernels}_{bits}bit"], "x")


def closed_form(claim: Claim) -> _Answer | None:
    """The paper's formulas with the paper's inputs."""
    kind, *words = claim.key
    return CLOSED_FORMS[kind](*words)


def _node(which: str) -> _Answer:
    layers, gradient_s = linear_layers(), machine_gradient_s()
    kernels = "convnet2" if which == "convnet2" else "nervana"
    speedups = machine_speedup(BASELINES_S[kernels], layers, gradient_s)
    if which == "convnet2":
        return float(speedups[0]), (
            f"baseline 17 s / 96; with 104.1 ms x 1.75, as the text compares the kernels, "
            f"{machine_speedup(0.1041 * 1.75, layers, gradient_s)[0]:.2f}"
        )
    why = "the text's saving of 3.16 ms is that of one pass through the linear layers, the printed speedups pay four"
    if which == "8":
        mixed = replace(layers, input_sync_s=layers.input_sync_s.mean())  # first inputs in 8 bits, last errors in 32
        why = f"if the last errors stayed in 32 bits {machine_speedup(0.1041, mixed, gradient_s)[1]:.2f}; {why}"
    return float(speedups[BITS.index(int(which))]), why


def _linear(which: str) -> _Answer:
    layers = linear_layers()
    return 1e3 * (layers.alone_s if which == "alone" else layers.parallel_s), "sum of the rows"


def _all_parameters() -> _Answer:
    time_s = float(machine_sync_s(4 * 60e6, bytes_per_s=7e9))
    return 1e3 * time_s, "4 messages of 240 MB at 7 GB/s; the paper takes their 0.223 GiB for GB"


def _gradient() -> _Answer:
    line = read_table("table5_infiniband")[0]
    size, latency_s = 1024 * float(line["size_32bit_kb"]), MILLI * float(line["latency_32bit_ms_per_msg"])
    whole_s = gradient_sync_s(size, latency_s, MACHINES, bytes_per_s=TEXT_BYTES_PER_S)
    return 1e3 * float(gradient_sync_s(size, latency_s, MACHINES)), (
        f"latencies and PCIe alone; with the text's time on InfiniBand at 6 GB/s too {1e3 * whole_s:.1f}"
    )


def _sync(item: str, bits: str) -> _Answer:
    line = next(line for line in read_table("table3_communication") if line["item"] == item)
    size, gradient = MIB * float(line["transfer_size_mb"]), item.endswith("gradient")
    ours_s = (2 if gradient else 1) * float(machine_sync_s(size * int(bits) / 32))
    if bits == "8":
        numbers = size / FLOAT32_COST.element_bytes
        coded_s = numbers * (EIGHT_BIT_COST.encode_s + 3 * EIGHT_BIT_COST.decode_s)
        return 1e3 * ours_s, (
            f"at 5.25 GB/s; the printed times are 4 x (31 us + size / 4 GB/s); encoding it and decoding three takes "
            f"{1e3 * coded_s:.2f} more by Sec. 3.2"
        )
    whys = {
        "conv1 gradient": "8 messages; the printed size is twice a fourth of the gradient",
        "fc": "4 messages; the printed size is that of the whole activation, not a fourth as the caption says",
    }
    why = whys.get(item) or (whys["fc"] if item.startswith("fc") else f"{8 if gradient else 4} messages")
    return 1e3 * ours_s, f"{why}; 5.25 GB/s"


def _at(batch: str, bits: str) -> tuple[int, int]:
    return pass_table().sub_batch.tolist().index(int(batch)), BITS.index(int(bits))


def _linear_s() -> float:
    return linear_layers().alone_s


def _forward(batch: str) -> _Answer:
    passes = pass_table().passes[_at(batch, "32")[0]]
    return 1e3 * float(passes) * _linear_s(), f"{passes} x 6.5 ms, the time of 128 samples, whatever the sub-batch"


def _single(batch: str, bits: str) -> _Answer:
    table, (i, b) = pass_table(), _at(batch, bits)
    size, latency_s, printed_s = (
        float(column[i, b]) for column in (table.message_bytes, table.latency_s, table.single_pass_s)
    )
    ours_s, text_s = (
        float(single_pass_s(size, latency_s, rate, MACHINES)) for rate in (PASS_BYTES_PER_S, TEXT_BYTES_PER_S)
    )
    implied_s = printed_s / (MACHINES - 1) - size / PASS_BYTES_PER_S
    why = f"31 messages at 4.5 GB/s; at the text's 6 GB/s {1e3 * text_s:.3g}"
    if abs(ours_s / printed_s - 1) > 0.05:
        like = "as in the row above" if batch == "2048" else "ten times Table 5's"
        why += f"; the printed value needs a latency of {1e3 * implied_s:.2g} ms, {like}"
    return 1e3 * ours_s, why


def _exposed_s(batch: str, bits: str, pass_s: float | None = None) -> float:
    """From Table 6's single pass, or another."""
    table, (i, b) = pass_table(), _at(batch, bits)
    single = float(table.single_pass_s[i, b]) if pass_s is None else pass_s
    product_s, passes = alexnet().product_s, float(table.passes[i])
    return float(exposed_s(single, machines=MACHINES, passes=passes, product_s=product_s, linear_s=_linear_s()))


def _overlap(batch: str, bits: str) -> _Answer:
    table, (i, b) = pass_table(), _at(batch, bits)
    why = f"31 times what exceeds 1.3 ms, whatever the number of sub-batches, here {table.passes[i]}"
    if table.single_pass_s[i, b] < alexnet().product_s:
        why = "the product of 1.3 ms hides all but one pass"
    if (batch, bits) == ("12288", "32"):
        why += "; the printed value subtracts nothing"
    return 1e3 * _exposed_s(batch, bits), why


def _total(batch: str, bits: str) -> _Answer:
    passes = pass_table().passes[_at(batch, bits)[0]]
    return 1e3 * (float(passes) * _linear_s() + _exposed_s(batch, bits)), "forward and full pass"


def _speedup(batch: str, bits: str, kernels: str) -> _Answer:
    ours = _speedup_of(batch, kernels, _exposed_s(batch, bits))
    by_table_5 = _speedup_of(batch, kernels, _exposed_s(batch, bits, MILLI * _single(batch, bits)[0]))
    whys = ["printed as sub-batch 2056"] if batch == "2048" else []
    if abs(by_table_5 / ours - 1) > 0.05:
        whys.append(f"with single passes from Table 5 {by_table_5:.3g}")
    if bits == "32":
        whys.append(f"overlapped as Sec. 2.4 says {_by_links(batch, kernels, FLOAT32_COST, Interpretation.SCHEME):.3g}")
    else:
        quarter = _by_links(batch, kernels, NumberCost("8-bit, coded in no time", 1.0), Interpretation.TABLE_6)
        scheme = _by_links(batch, kernels, EIGHT_BIT_COST, Interpretation.SCHEME)
        whys.append(f"with 8-bit messages of a quarter, not an eighth, {quarter:.3g}")
        whys.append(f"overlapped as Sec. 2.4 says, with a quarter and the times of Sec. 3.2, {scheme:.3g}")
    return ours, "; ".join(whys)


def _speedup_of(batch: str, kernels: str, transfers_s: float) -> float:
    whole_s, passes = BASELINES_S[kernels], float(pass_table().passes[_at(batch, "32")[0]])
    iteration_s = whole_s - _linear_s() + GRADIENT_S + passes * _linear_s() + transfers_s
    return MACHINES * DEVICES_PER_MACHINE * whole_s / iteration_s


@cache
def _infiniband() -> Latency:
    """Of a message between two machines, both hops: Table 5 by size, as the cluster has it."""
    hop = next(link.latency for link in load_cluster("fdr-32x3").links if link.link_class == "fdr")
    return Latency(hop.sizes_bytes, tuple(2 * second for second in hop.seconds))


def _by_links(batch: str, kernels: str, coding: NumberCost, reading: Interpretation) -> float:
    """Speedup with a message's size from its numbers, and its latency from Table 5 by size."""
    setting = Setting(
        sub_batch=float(batch),
        machines=MACHINES,
        devices_per_machine=DEVICES_PER_MACHINE,
        bytes_per_s=PASS_BYTES_PER_S,
        latency=_infiniband(),
    )
    return float(sub_batch_times(alexnet(kernels), setting, coding, reading).speedup)


CLOSED_FORMS: dict[str, Callable[..., _Answer]] = {
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
"""How a claim is recomputed, by the first word of its key."""

_WAYS: dict[str, Way] = {
    "closed form": closed_form,
    "simulation": lambda claim: simulated(claim.key),
    "simulation of Sec. 2.4": lambda claim: as_written(claim.key),
}
"""The rows of a claim, in order; another way is another entry."""
