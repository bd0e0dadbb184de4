"""How fast each data type encodes and decodes: millions of numbers a second, on one core, or on a GPU beside its bound.

Run as ``python tests/benchmarks/compression.py [numbers] [repetitions]``; prints a table.  The best of all repetitions
counts, since others may use the machine.  On a GPU the bound is the bandwidth that copying a large tensor reaches over
the bytes that must be moved: a number is read once for the scale and once to encode it.

Measured on one of two cores that other programs filled (load 19): the 8-bit types compressed 237 to 283 million
elements a second and decompressed 1004 to 1875; by the time that the thread itself ran, ``one-bit`` compressed 155 and
``threshold`` 210.
"""

import os
import sys
from time import perf_counter

import torch

from executor.compression.registry import data_type

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SPECS = (
    "dynamic-tree",
    "dynamic-tree:block=4096",
    "static-tree",
    "linear",
    "mantissa",
    "one-bit",
    "threshold:threshold=3",
    "float16",
    "bfloat16",
)
BAR = {"encode": 100e6, "decode": 200e6}
READS = 2
"""Times that encoding reads a number."""


def best_s(work, repetitions):
    """Shortest time of a piece of work; the first two runs do not count."""
    times = []
    for _ in range(repetitions + 2):
        start = finished()
        work()
        times.append(finished() - start)
    return min(times[2:])


def finished():
    """Wait for the device."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()
    return perf_counter()


def copied_bytes_per_s(count, repetitions):
    """Bandwidth of the device's memory, reading and writing."""
    source = torch.zeros(count, device=DEVICE)
    target = torch.empty_like(source)
    return 2 * source.nbytes / best_s(lambda: target.copy_(source), repetitions)


def measure(kind, numbers, repetitions):
    """Seconds to encode and to decode into buffers that are used again, as training does; with its residual."""
    residual = torch.zeros_like(numbers) if kind.feedback else None
    message = torch.empty(kind.compressed_bytes(len(numbers)), dtype=torch.uint8, device=DEVICE)
    decoded = torch.empty_like(numbers)

    def encode():
        if residual is not None:
            residual.zero_()  # else it grows with every repetition
        kind.compress(numbers, residual, out=message)

    return (
        best_s(encode, repetitions),
        best_s(lambda: kind.decompress(message, numbers.shape, out=decoded), repetitions),
    )


def main():
    count, repetitions = (int(value) for value in (sys.argv[1:] + ["25000000", "20"][len(sys.argv) - 1 :]))
    torch.set_num_threads(1)
    numbers = torch.randn(count, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    bandwidth = copied_bytes_per_s(count, repetitions)
    print(
        f"{count} numbers on {DEVICE}, one thread, best of {repetitions}; copy {bandwidth / 1e9:.0f} GB/s; "
        f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    print(f"{'type':26}{'bytes':>7}{'encode M/s':>12}{'of bound':>10}{'decode M/s':>12}{'of bound':>10}")
    for spec in SPECS:
        kind = data_type(spec)
        encode_s, decode_s = measure(kind, numbers, repetitions)
        encode, decode = count / encode_s, count / decode_s
        size = kind.compressed_bytes(count) / count
        shares = encode * (4 * READS + size) / bandwidth, decode * (4 + size) / bandwidth
        print(
            f"{spec:26}{size:>7.3f}{encode / 1e6:>12.0f}{shares[0]:>10.0%}{decode / 1e6:>12.0f}{shares[1]:>10.0%}",
            flush=True,
        )
        if DEVICE == "cpu" and size == 1 and (encode < BAR["encode"] or decode < BAR["decode"]):
            print(f"  below {BAR['encode'] / 1e6:.0f} and {BAR['decode'] / 1e6:.0f} M/s")


if __name__ == "__main__":
    main()
