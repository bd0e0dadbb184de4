"""Samples to train on and samples to test on: scikit-learn's digits, or the MNIST files of the user."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from executor.data.idx import read_mnist
from groundwork.errors import ConfigError

Samples = tuple[NDArray[Any], NDArray[np.int64]]
"""Inputs, shape (N, channel, height, width), and labels, shape (N,)."""
_TESTED = 357
"""Number of the 1797 digits that are held out; the 1440 others, a number with many divisors, are trained on."""


def read_accuracy_samples(data: str, sample: tuple[int, ...]) -> tuple[Samples, Samples]:
    """Return the samples to train on and those to test on; the division does not depend on the seed of a training.

    Args:
        data: Folder of the MNIST files; if empty, the digits that scikit-learn brings, in one fixed random order.
        sample: Channels and positions of the network's input.

    Raises:
        ConfigError: The files are missing or damaged, the network reads samples of another shape, or scikit-learn is
            needed and missing.
    """
    training, testing = (read_mnist(Path(data), "training"), read_mnist(Path(data), "testing")) if data else _digits()
    for inputs, _ in (training, testing):
        if inputs.shape[1:] != sample:
            wanted, given = (" x ".join(map(str, shape)) for shape in (sample, inputs.shape[1:]))
            if not data:
                raise ConfigError(f"data must name a folder of samples of {wanted}, got none, and digits are {given}")
            raise ConfigError(f"data {data} must be samples of {wanted} as the model reads them, got {given}")
    return training, testing


def _digits() -> tuple[Samples, Samples]:
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ConfigError(
            "data must name a folder without scikit-learn, which orrery-training[accuracy] brings"
        ) from error
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.images))
    inputs = (digits.images[order, None] / 8 - 1).astype(np.float32)  # 0 to 16 becomes -1 to 1
    labels = digits.target[order].astype(np.int64)
    return (inputs[_TESTED:], labels[_TESTED:]), (inputs[:_TESTED], labels[:_TESTED])
