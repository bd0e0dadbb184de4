"""Fit the efficiency parameters of a compute profile to published measurements, and print them.

    python tests/benchmarks/calibrate_profiles.py MEASURED_DIR

Three kinds of source are read, the first and last from ``MEASURED_DIR``:

- ``deepbench_conv.csv``, ``deepbench_gemm.csv``: times of single kernels.  Eleven parameters of one GPU are
  fitted to about 240 times (three phases of 56 convolutions, 89 products) by least squares on the logarithm
  of the time, with a soft loss so that a badly chosen library kernel does not pull the fit.
- the rows of Table 4 of the 8-bit paper, kept in the ``titanx-nervana`` profile: three ceilings and the half sizes
  of columns and output are fitted, the others are set small.
- ``tf_benchmarks_2017.csv``, ``tf_cnn_single_gpu.csv``: images/s of whole networks, for GPUs without
  kernel times.  Two parameters (a common factor on the ceilings, the gain of Winograd's algorithm) are
  fitted; the rest is taken from the nearest GPU with kernel times.

The model is `hwprofiles.compute.compute_profile`'s own: the script builds profiles and calls ``time_s``.
"""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from hwprofiles.aliases import Floats
from hwprofiles.compute.compute_profile import PROFILE_PHASES, ComputeProfile
from hwprofiles.compute.kernels import Kernels
from hwprofiles.compute.profile_file import load_profile

DEEPBENCH = {"p100": "P100", "titanx": "TitanX", "v100-16gb": "V100"}
NETWORKS = {  # profile: (its rows as (network, batch, images/s), the profile that gives the saturation sizes)
    "k80": ("tf_benchmarks_2017.csv", "Tesla K80 (8 per node)", "p100"),
    "a100-40gb": ("tf_cnn_single_gpu.csv", "A100 40GB PCIe", "v100-16gb"),
}
# (input channels, output channels, kernel side, stride, output side, repetitions)
VGG16 = [
    (3, 64, 3, 1, 224, 1), (64, 64, 3, 1, 224, 1), (64, 128, 3, 1, 112, 1), (128, 128, 3, 1, 112, 1),
    (128, 256, 3, 1, 56, 1), (256, 256, 3, 1, 56, 2), (256, 512, 3, 1, 28, 1), (512, 512, 3, 1, 28, 2),
    (512, 512, 3, 1, 14, 3), (25088, 4096, 1, 1, 1, 1), (4096, 4096, 1, 1, 1, 1), (4096, 1000, 1, 1, 1, 1),
]  # fmt: skip
ALEXNET = [
    (3, 64, 11, 4, 55, 1), (64, 192, 5, 1, 27, 1), (192, 384, 3, 1, 13, 1), (384, 256, 3, 1, 13, 1),
    (256, 256, 3, 1, 13, 1), (9216, 4096, 1, 1, 1, 1), (4096, 4096, 1, 1, 1, 1), (4096, 1000, 1, 1, 1, 1),
]  # fmt: skip


def _resnet50() -> list[tuple[int, int, int, int, int, int]]:
    layers = [(3, 64, 7, 2, 112, 1)]
    for width, side, blocks, before in ((64, 56, 3, 64), (128, 28, 4, 256), (256, 14, 6, 512), (512, 7, 3, 1024)):
        stride = 1 if before == 64 else 2
        layers += [(before, width, 1, 1, side * stride, 1), (before, 4 * width, 1, stride, side, 1)]
        layers += [(width, width, 3, stride, side, 1), (width, width, 3, 1, side, blocks - 1)]
        layers += [(width, 4 * width, 1, 1, side, blocks), (4 * width, width, 1, 1, side, blocks - 1)]
    return [*layers, (2048, 1000, 1, 1, 1, 1)]


# Passes over the output of a convolution that normalisation and activation make, forward plus backward.
NETWORK_LAYERS = {"VGG16": (VGG16, 5), "vgg16": (VGG16, 5), "AlexNet": (ALEXNET, 5), "alexnet": (ALEXNET, 5),
                  "ResNet-50": (_resnet50(), 13), "resnet50": (_resnet50(), 13)}  # fmt: skip


def network_time_s(profile: ComputeProfile, name: str, batch: int) -> float:
    """Seconds of one training iteration of a network of convolutions, one GPU."""
    layers, passes = NETWORK_LAYERS[name]
    c, k, r, s, p, times = (np.array(column, float) for column in zip(*layers, strict=True))
    flop, moved = 2 * batch * p**2 * k * c * r**2, 4 * (batch * c * (p * s) ** 2 + c * k * r**2 + batch * k * p**2)
    samples, zero = np.full_like(c, batch), np.zeros_like(c)
    gemms = gemm_sizes(c=c, k=k, volume=r**2, samples=samples, out=p**2, into=(p * s) ** 2)
    total = sum(
        profile.time_s(
            Kernels(flop=flop, memory_bytes=moved, rows=m, columns=n, depth=d, samples=samples),
            phase=phase,
            winograd=(r == 3) & (s == 1),
        )
        for phase, (m, n, d) in gemms.items()
    )
    streamed = 4 * passes * batch * k * p**2 + 4 * 5 * c * k * r**2  # the update: momentum, five passes
    streaming = Kernels(flop=zero, memory_bytes=streamed, rows=zero, columns=zero, depth=zero, samples=samples)
    return float(((total + profile.time_s(streaming)) * times).sum())


def gemm_sizes(*, c, k, volume, samples, out, into) -> dict[str, tuple[Floats, Floats, Floats]]:
    """Rows, columns and depth of a convolution's three products, by phase."""
    return {
        "forward": (k, samples * out, c * volume),
        "activation_gradient": (c, samples * into, k * volume),
        "weight_gradient": (k, c * volume, samples * out),
    }


def deepbench(folder: Path, gpu: str) -> dict[str, tuple[Kernels, Floats, Floats]]:
    """Kernels, Winograd flags and measured seconds of one GPU, by phase; products count as forward."""
    conv = pd.read_csv(folder / "deepbench_conv.csv").query("gpu == @gpu")
    c, k, samples = (conv[name].to_numpy(float) for name in ("in_c", "out_k", "batch_n"))
    volume, into = (conv.filter_r_h * conv.filter_s_w).to_numpy(float), (conv.in_h * conv.in_w).to_numpy(float)
    # The table's own FLOP count gives the output positions whatever the order of the filter's sides.
    out = (conv.fwd_tflops * conv.fwd_ms * 1e9).to_numpy() / (2 * k * c * volume * samples)
    flop, moved = 2 * samples * out * k * c * volume, 4 * (samples * (c * into + k * out) + c * k * volume)
    winograd = ((volume == 9) & (conv.stride_h == 1)).to_numpy()
    sizes = gemm_sizes(c=c, k=k, volume=volume, samples=samples, out=out, into=into)
    found = {}
    for phase, column in zip(PROFILE_PHASES, ("fwd_ms", "bwd_data_ms", "bwd_weight_ms"), strict=False):
        known = conv[column].notna().to_numpy()
        arrays = dict(zip(("rows", "columns", "depth"), sizes[phase], strict=True))
        arrays |= {"flop": flop, "memory_bytes": moved, "samples": samples}
        kernels = Kernels(**{name: array[known] for name, array in arrays.items()})
        found[phase] = kernels, winograd[known], conv[column].to_numpy()[known] * 1e-3
    found["product"] = _products(folder, gpu)
    return found


def _products(folder: Path, gpu: str) -> tuple[Kernels, Floats, Floats]:
    table = pd.read_csv(folder / "deepbench_gemm.csv").query("gpu == @gpu")
    m, n, k = (table[name].to_numpy(float) for name in "mnk")
    moved = 4 * (m * n + m * k + n * k)
    kernels = Kernels(flop=2 * m * n * k, memory_bytes=moved, rows=m, columns=n, depth=k, samples=n)
    return kernels, np.zeros(len(m), bool), table.time_ms.to_numpy() * 1e-3


def with_parameters(profile: ComputeProfile, p: Floats) -> ComputeProfile:
    """Profile with the fitted parameters: three ceilings, Winograd, six half sizes, launch overhead."""
    efficiency = replace(
        profile.efficiency,
        ceiling=(*p[:3], 1.0, 1.0),
        winograd_speedup=p[3],
        half_rows=p[4],
        half_columns=p[5],
        half_depth=p[6],
        half_output=p[7],
        half_samples=p[8],
        half_positions=p[9],
    )
    return replace(profile, efficiency=efficiency, launch_overhead_s=p[10] * 1e-6)


def fit_kernels(folder: Path, name: str) -> None:
    """Fit one GPU's parameters to its DeepBench times and print them with the median errors."""
    base, data = load_profile(name), deepbench(folder, DEEPBENCH[name])

    def errors(log_p: Floats) -> list[Floats]:
        profile = with_parameters(base, np.exp(log_p))
        return [
            np.log(profile.time_s(kernels, phase="forward" if phase == "product" else phase, winograd=winograd) / time)
            for phase, (kernels, winograd, time) in data.items()
        ]

    low, high = [0.3, 0.2, 0.2, 1, 0.5, 0.5, 0.5, 100, 0.05, 1, 3], [1, 1, 1, 4, 500, 500, 500, 1e6, 40, 1e4, 20]
    bounds, start = np.log([low, high]), np.log([0.8, 0.7, 0.7, 1.8, 20, 20, 20, 5e3, 1, 200, 6])
    fit = least_squares(lambda p: np.concatenate(errors(p)), start, bounds=bounds, loss="soft_l1", f_scale=0.3)
    print(name, "parameters", np.round(np.exp(fit.x), 3).tolist())
    for phase, error in zip(data, errors(fit.x), strict=True):
        print(f"  {phase}: median error {np.median(np.abs(np.expm1(error))):.0%}, bias {np.median(error):+.2f}")
    print(f"  all: median error {np.median(np.abs(np.expm1(np.concatenate(errors(fit.x))))):.0%}")


def fit_table_4(name: str = "titanx-nervana") -> None:
    """Fit the profile that carries Table 4 to its own rows, the first layer and pooling left out."""
    base, batch = load_profile(name), np.array([128.0])
    layers = {f"conv{i + 1}": layer for i, layer in enumerate(ALEXNET[:5]) if i}
    layers |= {"fc1": (9216, 3072, 1, 1, 1, 1), "fc2": (3072, 3072, 1, 1, 1, 1), "fc3": (3072, 1000, 1, 1, 1, 1)}

    def errors(log_p: Floats) -> Floats:
        p = np.exp(log_p)
        profile = with_parameters(base, np.array([*p[:3], 1, 1, p[3], 5, p[4], 0.1, 1, 8]))
        found = []
        for layer, (c, k, r, _, side, _) in layers.items():
            one = np.ones(1)
            sizes = gemm_sizes(c=c * one, k=k * one, volume=r**2, samples=batch, out=side**2, into=side**2)
            for phase, (m, n, d) in sizes.items():
                kernels = Kernels(flop=2 * m * n * d, memory_bytes=0 * m, rows=m, columns=n, depth=d, samples=batch)
                row = base.measured("alexnet-3072", layer, phase)
                found.append(np.log(profile.time_s(kernels, phase=phase)[0] / row.time_s))
        return np.array(found)

    bounds = np.log([[0.3, 0.3, 0.3, 0.5, 10], [1, 1, 1, 200, 1e6]])
    fit = least_squares(errors, np.log([0.9, 0.9, 0.9, 10, 3000]), bounds=bounds, loss="soft_l1", f_scale=0.2)
    print(name, "ceilings, half columns, half output", np.round(np.exp(fit.x), 3).tolist())
    print(f"  median error {np.median(np.abs(np.expm1(fit.fun))):.0%}")


def fit_networks(folder: Path, name: str) -> None:
    """Fit a factor on the ceilings and Winograd's gain to images/s, and print them with the errors."""
    file, gpu, nearest = NETWORKS[name]
    table, base, near = pd.read_csv(folder / file), load_profile(name), load_profile(nearest)
    scale = base.multiprocessors / near.multiprocessors
    shape = replace(near.efficiency, half_output=near.efficiency.half_output * scale)
    table = table.rename(columns={"config": "gpu", "global_batch": "batch_per_gpu"})
    table = table[(table.gpu == gpu) & (table.n_gpus == 1) & table.model.isin(NETWORK_LAYERS)]
    table = table[table.precision.str.startswith("fp32")]
    measured = (table.batch_per_gpu / table.images_per_sec).to_numpy()

    def errors(p: Floats) -> Floats:
        ceiling = tuple(c * p[0] for c in shape.ceiling[:3])
        profile = replace(base, efficiency=replace(shape, ceiling=(*ceiling, 1.0, 1.0), winograd_speedup=p[1]))
        pairs = zip(table.model, table.batch_per_gpu, strict=True)
        return np.log([network_time_s(profile, *pair) for pair in pairs]) - np.log(measured)

    fit = least_squares(errors, [0.5, 1.5], bounds=([0.05, 1.0], [1.2, 4.0]))
    print(name, "factor on the ceilings and Winograd's gain", np.round(fit.x, 3).tolist())
    for model, batch, error in zip(table.model, table.batch_per_gpu, errors(fit.x), strict=True):
        print(f"  {model} batch {batch}: {np.expm1(error):+.0%}")


if __name__ == "__main__":
    for profile_name in DEEPBENCH:
        fit_kernels(Path(sys.argv[1]), profile_name)
    fit_table_4()
    for profile_name in NETWORKS:
        fit_networks(Path(sys.argv[1]), profile_name)
