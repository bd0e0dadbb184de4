"""Inputs of the paper's closed forms: its Tables 3 to 6, in SI units.

Sizes are printed in kB and MB and are those of the layers in KiB and MiB.  Where they are not, and where one table
contradicts another, ``studies.reproduce.eight_bit_claims`` says so; values here are the printed ones.

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, Tables 3 to 6 and Appendix A.
"""

import csv
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from groundwork.array_types import Floats
from studies.eight_bit.machine import LinearLayers

BITS = (32, 8)
"""Columns of the arrays below."""
MACHINES, DEVICES_PER_MACHINE = 32, 3
"""Machines of the cluster of Appendix A.2, and the devices of each."""
PAPER_SAMPLES = 128
"""Samples of a device's mini-batch, and of a sub-batch."""
FEATURES = 9216
"""Inputs of the first linear layer (Table 4)."""
BASELINES_S = {"nervana": 0.1041, "convnet2": 17.0 / 96}
"""Iteration of one device with either kernels: Table 4's total, and the baseline of Table 7 over its 96 devices."""
GRADIENT_S = 1.9e-3
"""Synchronisation of the last gradient of the convolutions among 96 devices (A.2.2)."""
PASS_BYTES_PER_S = 4.5e9
"""Bandwidth with which Table 5 gives Table 6's single passes (4.4 if kB are 1000 bytes).  The text says 6 GB/s."""
KIB, MILLI = 1024.0, 1e-3


def read_table(name: str) -> list[dict[str, str]]:
    """Return the rows of a file of printed values, columns by name."""
    text = (files("studies") / "data" / f"eight_bit_{name}.csv").read_text()
    return list(csv.DictReader(text.splitlines()))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PassTable:
    """Sub-batches of the 96 devices, with shape (6,) by sub-batch, or (6, 2) with a column for each of ``BITS``."""

    sub_batch: NDArray[np.int64]
    passes: NDArray[np.int64]
    message_bytes: Floats
    """Message sizes of Table 5.  The 8-bit sizes are an eighth of the 32-bit ones, not a quarter."""
    latency_s: Floats
    """Latencies of one message, Table 5."""
    single_pass_s: Floats
    """Single passes of Table 6."""


def pass_table() -> PassTable:
    """Return the sub-batches of Tables 5 and 6."""
    messages = [line for line in read_table("table5_infiniband") if line["item"] == "conv activation"]
    passes = read_table("table6_and_7")
    return PassTable(
        sub_batch=np.array([int(line["sub_batch"]) for line in passes]),
        passes=np.array([int(line["forward_passes"]) for line in passes]),
        message_bytes=KIB * _columns(messages, "size_{}bit_kb"),
        latency_s=MILLI * _columns(messages, "latency_{}bit_ms_per_msg"),
        single_pass_s=MILLI * _columns(passes, "single_pass_{}bit_ms"),
    )


def row_of(sub_batch: str) -> int:
    """Return the row of a sub-batch in the arrays of ``pass_table``."""
    return [line["sub_batch"] for line in read_table("table6_and_7")].index(sub_batch)


def passes_of(sub_batch: str) -> int:
    """Return how many sub-batches of a size an iteration has."""
    return int(pass_table().passes[row_of(sub_batch)])


def linear_layers() -> LinearLayers:
    """Return the linear layers on 4 GPUs of Tables 3 and 4; transfers have a leading axis for ``BITS``."""
    linear = [line for line in read_table("table4_compute") if line["kind"] == "linear"]
    syncs = [line for line in read_table("table3_communication") if line["item"].partition(" ")[2].startswith("act")]
    sync_s = MILLI * _columns(syncs, "sync_{}bit_ms").T
    steps = ("fprop", "bprop", "update")
    return LinearLayers(
        alone_s=MILLI * sum(float(line[f"{step}_ms"]) for line in linear for step in steps),
        parallel_s=MILLI * sum(float(line[f"parallel_{step}_ms"]) for line in linear for step in steps),
        forward_s=MILLI * np.array([float(line["parallel_fprop_ms"]) for line in linear]),
        input_sync_s=sync_s[:, 0],
        output_sync_s=sync_s[:, 1:],
    )


def machine_gradient_s() -> float:
    """Return the time to synchronise the first convolution's gradient on 4 GPUs, in 32 bits for both data types.

    Source: Dettmers, "8-Bit Approximations ...", Table 3.
    """
    return MILLI * float(read_table("table3_communication")[0]["sync_32bit_ms"])


def product_s() -> float:
    """Return the time of the first linear layer's forward product, which hides a transfer in Table 6."""
    return MILLI * next(float(line["fprop_ms"]) for line in read_table("table4_compute") if line["layer"] == "fc1")


def _columns(lines: list[dict[str, str]], name: str) -> Floats:
    """Return the columns of a table for ``BITS``, shape (rows, 2)."""
    return np.array([[float(line[name.format(bits)]) for bits in BITS] for line in lines])
