"""The closed forms of the 8-bit approximations paper: speedups of sub-batches on one machine and on many.

Convolutions are data parallel.  Then the mini-batch goes through the linear layers in sub-batches, each spread over
all devices, and the transfers of one hide behind the arithmetic of another (Sec. 2.4).

Source: Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016.
"""

from planner.eight_bit.coding import EIGHT_BIT, FLOAT32, Coding
from planner.eight_bit.crossover import Crossover, crossover
from planner.eight_bit.machine import LinearLayers, exchange_s, machine_penalty_s, machine_speedup
from planner.eight_bit.many import (
    Reading,
    Setting,
    Times,
    Workload,
    exposed_s,
    gradient_exchange_s,
    single_pass_s,
    sub_batch_times,
)

__all__ = [
    "EIGHT_BIT",
    "FLOAT32",
    "Coding",
    "Crossover",
    "LinearLayers",
    "Reading",
    "Setting",
    "Times",
    "Workload",
    "crossover",
    "exchange_s",
    "exposed_s",
    "gradient_exchange_s",
    "machine_penalty_s",
    "machine_speedup",
    "single_pass_s",
    "sub_batch_times",
]
