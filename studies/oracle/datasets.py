"""Data sets by name, with the number of samples of an epoch."""

from groundwork.errors import ConfigError
from groundwork.requests import positive_integer
from groundwork.suggestions import did_you_mean

DATASETS = {"imagenet": 1_281_167, "cifar10": 50_000, "cosmoflow": 99_456}
"""Training samples.

Sources: Russakovsky et al., "ImageNet large scale visual recognition challenge", IJCV 2015, Table 2; Krizhevsky,
"Learning multiple layers of features from tiny images", 2009; Mathuriya et al., "CosmoFlow", SC 2018: eight
sub-volumes of each of 12,632 simulations, without 1,600 for validation and test.
"""


def samples_of(dataset: str | int) -> int:
    """Return the number of samples of a data set.

    Args:
        dataset: A name of ``DATASETS``, or a number of samples >= 1 (also as text).

    Raises:
        ConfigError: Neither.
    """
    if isinstance(dataset, str) and dataset in DATASETS:
        return DATASETS[dataset]
    text = str(dataset)
    if (samples := positive_integer(text)) is not None:
        return samples
    hint = did_you_mean(text, DATASETS)
    raise ConfigError(f"dataset must be one of {', '.join(DATASETS)} or a number of samples >= 1, got {text!r}{hint}")
