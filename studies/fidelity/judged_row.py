"""One measured value beside the predicted one, and the measures in which such rows are counted."""

import math
from dataclasses import dataclass
from enum import StrEnum

KINDS_JUDGED = ("kernels", "one-gpu", "many-gpu", "collectives", "transformers", "memory", "papers")
"""Kinds of comparison, as ``orrery fidelity --only`` names them."""


PYTORCH_MEASURE = "training on one GPU, in PyTorch"
"""Measure of networks in software that no profile was fitted to."""
RELATIVE_MEASURE = "training on one GPU, another device's shares"
"""Measure of predictions by a device's data sheet and what was measured on its nearest relative."""


CALIBRATED_MEASURE = "collectives between more machines, calibrated on two"
"""Measure of collectives by cluster files that were fitted to what one and two of their machines take."""


class OwnMeasure(StrEnum):
    """Measures of our own rows, of one GPU and release: one for each kind of prediction that is made alike."""

    PRODUCTS = "products on H200 (PyTorch 2.11)"
    CONVOLUTIONS = "convolutions on H200 (PyTorch 2.11)"
    COPIED_CONVOLUTIONS = "convolutions on H200, other order (PyTorch 2.11)"
    ELEMENTWISE = "copies and sums on H200 (PyTorch 2.11)"
    NETWORKS = "training on one H200 (PyTorch 2.11)"
    COPIED_NETWORKS = "training on one H200, other order (PyTorch 2.11)"
    LANGUAGE_MODELS = "language models planned on one H200 (PyTorch 2.11)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A group of comparisons that share one bar."""

    name: str
    kind: str
    """One of ``KINDS_JUDGED``."""
    median_bar: float | None = None
    """Largest median absolute error that is aimed at; None where none is set."""
    p90_bar: float | None = None
    """The same for the 90th percentile of the absolute error."""
    kernels: tuple[str, ...] = ()
    """Kinds of kernels whose errors on rows that were held out of fits are counted here; all where none is named."""

    def counts(self, kind: str, case: str) -> bool:
        """Return whether the held-out rows of a case, such as ``bfloat16 product``, are counted here."""
        return kind == self.kind and (not self.kernels or not set(self.kernels).isdisjoint(case.split()))


MEASURES = (
    Measure(
        name="convolutions, products and attention",
        kind="kernels",
        median_bar=0.08,
        p90_bar=0.25,
        kernels=("convolution", "product", "attention"),
    ),
    Measure(name="norms, elementwise chains and experts", kind="kernels", kernels=("norm", "elementwise", "moe")),
    Measure(name=OwnMeasure.PRODUCTS, kind="kernels", median_bar=0.08, p90_bar=0.25),
    Measure(name=OwnMeasure.CONVOLUTIONS, kind="kernels", median_bar=0.08, p90_bar=0.25),
    Measure(name=OwnMeasure.COPIED_CONVOLUTIONS, kind="kernels"),
    Measure(name=OwnMeasure.ELEMENTWISE, kind="kernels"),
    Measure(name="training on one GPU", kind="one-gpu", median_bar=0.08, p90_bar=0.20),
    Measure(name=RELATIVE_MEASURE, kind="one-gpu"),
    Measure(name=PYTORCH_MEASURE, kind="one-gpu", median_bar=0.08, p90_bar=0.20),
    Measure(name=OwnMeasure.NETWORKS, kind="one-gpu", median_bar=0.08, p90_bar=0.20),
    Measure(name=OwnMeasure.COPIED_NETWORKS, kind="one-gpu"),
    Measure(name=OwnMeasure.LANGUAGE_MODELS, kind="one-gpu"),
    Measure(name="several GPUs relative to one", kind="many-gpu", median_bar=0.03, p90_bar=0.10),
    Measure(name="several GPUs relative to one, default options", kind="many-gpu", median_bar=0.03, p90_bar=0.10),
    Measure(name="several GPUs relative to one, ideal machines", kind="many-gpu"),
    Measure(name="collectives in one machine above 1 MiB", kind="collectives", median_bar=0.10, p90_bar=0.25),
    Measure(name="collectives in one machine up to 1 MiB", kind="collectives", median_bar=0.20),
    Measure(name="collectives between two machines above 1 MiB", kind="collectives", median_bar=0.15, p90_bar=0.40),
    Measure(name="collectives between two machines up to 1 MiB", kind="collectives", median_bar=0.20),
    Measure(name="collectives between more machines above 1 MiB", kind="collectives", median_bar=0.15, p90_bar=0.40),
    Measure(name="collectives between more machines up to 1 MiB", kind="collectives", median_bar=0.20),
    Measure(name=CALIBRATED_MEASURE, kind="collectives", median_bar=0.10, p90_bar=0.25),
    Measure(name="all-reduce in PCIe trees", kind="collectives", median_bar=0.12),
    Measure(name="iterations of GPT, large layers", kind="transformers", median_bar=0.08, p90_bar=0.20),
    Measure(name="iterations of GPT, small layers", kind="transformers", median_bar=0.08, p90_bar=0.20),
    Measure(name="iterations of GPT on H100", kind="transformers", median_bar=0.08, p90_bar=0.20),
    Measure(name="layers of GPT", kind="transformers", median_bar=0.08, p90_bar=0.20),
    Measure(name="iterations of MPT", kind="transformers", median_bar=0.08, p90_bar=0.20),
    Measure(name="iterations of Llama", kind="transformers", median_bar=0.08, p90_bar=0.20),
    Measure(name="iterations of Llama, tensors and stages", kind="transformers", median_bar=0.08, p90_bar=0.20),
    Measure(name="peak memory of GPT", kind="memory", median_bar=0.03, p90_bar=0.08),
    Measure(name="tables of papers", kind="papers"),
)
"""All measures in the order in which they are shown; the bars are the project's aims."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRow:
    """A measured value and the predicted one."""

    measure: str
    """Name of one of ``MEASURES``."""
    comparison: str
    """Comparison within the measure, such as a table and a device."""
    label: str
    group: str
    """Device or system, which a cross-validation leaves out as a whole."""
    subject: str = ""
    """Model, phase or collective: rows of one group and subject have most of their error in common."""
    measured: float
    """Seconds; of several GPUs, the time of an iteration relative to that on one; bytes of memory; a paper's value."""
    predicted: float = math.nan
    """The same, predicted; NaN where there is no prediction."""
    fitted: bool = False
    """True if the device's profile was fitted to the table that the row is from."""
    reason: str = ""
    """Why there is no prediction, or what a paper's row notes."""
    arithmetic: str = ""
    """Arithmetic of products; empty where the rows do not say, or have several."""
    software: str = ""
    """Framework or library that measured; empty where it is not known or does not matter."""
    size: float = 1.0
    """Batch or bytes, by which rows of one group and subject differ."""
    nodes: int = 1
    peak_s: float = 0.0
    """Seconds in which a device at its peak computes its share of the model; 0 where rows are not ranked by speed."""
    communication: float = 0.0
    profile: str = ""
    """Of iterations on several GPUs, their profile."""
    alone: float = 0.0
    """Of several GPUs, the logarithm of predicted over measured time of the same iteration on one of them."""

    def __post_init__(self) -> None:
        """Raise ValueError where there is neither a prediction nor a reason."""
        if not (self.is_predicted or self.reason):
            raise ValueError(f"reason must say why {self.label} of {self.comparison} has no prediction, got none")

    @property
    def log_ratio(self) -> float:
        """Logarithm of predicted over measured value: positive where the prediction is too large."""
        return math.log(self.predicted / self.measured)

    @property
    def error(self) -> float:
        """Predicted over measured value, minus 1."""
        return self.predicted / self.measured - 1

    @property
    def is_predicted(self) -> bool:
        """True if there is a prediction to judge."""
        return math.isfinite(self.predicted) and self.predicted > 0
