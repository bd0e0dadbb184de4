"""Rows of tables of measurements, the devices that they name, and the compute profiles that stand for these."""

from typing import Any

from hwprofiles.compute.profile_file import catalogue, load_profile
from hwprofiles.measured.measured_tables import measured_table

_PROFILES = {
    "k80": ("k80",),
    "m40": ("m40",),
    "m60": ("m60",),
    "t4": ("t4",),
    "gtx1080": ("gtx-1080", "gtx1080"),
    "1080ti": ("gtx-1080ti", "gtx-1080-ti", "gtx1080ti", "1080ti"),
    "titanx": ("titanx",),
    "titanxpascal": ("titanx-pascal", "titan-x-pascal"),
    "titanxp": ("titanxp", "titan-xp"),
    "p100": ("p100",),
    "v100": ("v100-16gb",),
    "v10032gb": ("v100-32gb", "v100-16gb"),
    "v10016gb": ("v100-16gb",),
    "a10040gbpcie": ("a100-40gb",),
    "a10080gbpcie": ("a100-80gb",),
    "rtx2070maxq": ("rtx-2070-max-q",),
    "rtx2080maxq": ("rtx-2080-max-q",),
    "rtx2080supermaxq": ("rtx-2080-super-max-q",),
    "rtx2080ti": ("rtx-2080ti",),
    "rtx8000": ("rtx-8000",),
    "rtx3080": ("rtx-3080",),
    "rtx3090": ("rtx-3090",),
    "rtxa6000": ("rtx-a6000",),
}
"""Profiles of each device, the best one first; one that is not in the catalogue is passed over."""

_SAME = {
    "teslap1008pernode": "p100",
    "teslak808pernode": "k80",
    "gtx1080ti": "1080ti",
    "pascaltitanx": "titanxpascal",
    "maxwelltitanx": "titanx",
    "titanxmaxwellinferredfromdate": "titanx",
    "lambdacloudrtxa6000": "rtxa6000",
}
"""Longer names of the same devices."""

_ORIGINS = {
    "deepbench_conv": "DeepBench",
    "deepbench_gemm": "DeepBench",
    "tf_benchmarks_2017": "performance/benchmarks.md",
    "tf_cnn_single_gpu": "lambda-tensorflow-benchmark",
    "mxnet_single_gpu": "incubator-mxnet",
    "cnn_benchmarks": "jcjohnson/cnn-benchmarks",
    "convnet_benchmarks_models": "convnet-benchmarks",
    "pytorch_resnet50": "deeplearning-benchmark",
}
"""Words by which the sources of a profile name each table."""


def profile_named(device: str) -> str | None:
    """Return the profile of a device as a table names it, or None where the catalogue has none."""
    plain = "".join(letter for letter in device.lower() if letter.isalnum())
    shipped = catalogue()
    return next((name for name in _PROFILES.get(_SAME.get(plain, plain), ()) if name in shipped), None)


def is_fitted_to(profile: str, table: str) -> bool:
    """Return whether a profile of the catalogue names a table of measurements among its sources."""
    words = (f"measured/{table}.csv", _ORIGINS.get(table, ""))
    return any(word in source for source in load_profile(profile).sources for word in words if word)


def rows_of_table(table: str) -> list[Any]:
    """Return the rows of a table of measurements as named tuples."""
    return list(measured_table(table).itertuples(index=False))
