"""Requests of questions of size: what is planned, and what is trained, as they are typed."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from groundwork.errors import ConfigError
from groundwork.requests import option, whole_number
from planner.plan.plan_options import Precision, SyncAlgorithm
from studies.size.typed_values import duration_s

if TYPE_CHECKING:  # reading the fields for --help must not load NumPy
    from studies.size.sized_point import Subject
    from studies.size.training import TrainingRun


_BATCH_PER_DEVICE = 32
"""Samples of each device where no batch is given."""


def _strategy_names(text: str) -> tuple[str, ...]:
    """Return the strategies that commas separate."""
    from planner.plan.plan_text import split_plan_texts

    return tuple(split_plan_texts(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class SubjectRequest:
    """What is planned on every cluster."""

    model: str = option(help="Model, such as vgg16 or vgg16:classes=21841.", metavar="MODEL", positional=True)
    batch: int | None = option(
        None, help="Samples in a mini-batch, over however many devices.", metavar="N", parser=whole_number
    )
    batch_per_device: int | None = option(
        None,
        help=f"Samples of each device; {_BATCH_PER_DEVICE} if no batch is given.",
        metavar="B",
        parser=whole_number,
    )
    strategies: tuple[str, ...] = option(
        ("data",),
        help="Strategies, of which the fastest that fits is taken.",
        metavar="S,S,...",
        typed="data",
        parser=_strategy_names,
    )
    gradient_sync: SyncAlgorithm | None = option(
        None, help="All-reduce that synchronises gradients; else as orrery plan does."
    )
    framework: str = option("", help="Training software; else as orrery plan does.", metavar="F")
    dtype: Precision = option("float32", help="Data type of tensors and messages; float16 keeps master weights.")

    def subject(self) -> "Subject":
        """Return what is planned.

        Raises:
            ConfigError: Both batches are given, or no strategy.
        """
        from studies.size.sized_point import Subject

        if self.batch and self.batch_per_device:
            raise ConfigError("batch must be given for all devices or for each, got both batch and batch_per_device")
        given = {"gradient_sync": self.gradient_sync, "framework": self.framework, "dtype": self.dtype}
        each = 0 if self.batch else self.batch_per_device or _BATCH_PER_DEVICE
        return Subject(
            model=self.model,
            batch=self.batch or 0,
            batch_per_device=each,
            strategies=self.strategies,
            options={name: value for name, value in given.items() if value},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """A training run."""

    epochs: int = option(90, help="Epochs.", metavar="N", parser=whole_number)
    dataset: str = option("imagenet", help="Data set (imagenet, cifar10, cosmoflow), or samples of an epoch.")
    node_mtbf: float | None = option(
        None,
        help="Mean time between failures of one node, such as 1y; else nothing fails.",
        metavar="TIME",
        parser=duration_s,
    )
    checkpoint: float = option("30s", help="Time that a checkpoint takes.", metavar="TIME", parser=duration_s)
    restart: float = option(
        "5min", help="Time from a failure until training goes on.", metavar="TIME", parser=duration_s
    )

    def training(self) -> "TrainingRun":
        """Return the run.

        Raises:
            ConfigError: The data set is neither known nor a number of samples.
        """
        from studies.oracle.oracle_request import samples_of
        from studies.size.failures import Failures
        from studies.size.training import TrainingRun

        failures = None
        if self.node_mtbf is not None:
            failures = Failures(node_mtbf_s=self.node_mtbf, checkpoint_s=self.checkpoint, restart_s=self.restart)
        return TrainingRun(samples=samples_of(self.dataset), epochs=self.epochs, failures=failures)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRequest:
    """What a training run may cost."""

    money: float | None = option(None, help="Budget in the unit of the prices.", metavar="X")
    device_hours: float | None = option(None, help="Budget in hours of devices.", metavar="H")
