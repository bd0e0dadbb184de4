"""What a study of accuracies says, in words and columns; the terminal and the page print the same."""

from rich.table import Table
from rich.text import Text

from executor.accuracy import FLOAT32, AccuracyResult, Compared, Interval

__all__ = ["MODE_WORDS", "accuracy_headline", "accuracy_table", "difference_text", "interval_text", "remarks"]

MODE_WORDS = {"data": "data parallel, gradients", "model": "model parallel, activations and their gradients"}
"""What is compressed in each mode."""


def accuracy_headline(result: AccuracyResult) -> str:
    """Which types can be told apart from float32, and what float32 reaches."""
    rows = [row for row in result.rows if row.type != FLOAT32]
    apart = [row for row in rows if not row.difference.low <= 0 <= row.difference.high]
    plain = ", ".join(
        f"{row.mode} parallel {interval_text(row.accuracy)}" for row in result.rows if row.type == FLOAT32
    )
    same = f"{len(rows) - len(apart)} of {len(rows)} types and modes are not told apart from float32 ({plain})"
    told = "; ".join(f"{row.type}, {row.mode} parallel, is {row.conclusion}" for row in apart)
    return f"{result.request.model}: {same}{f'; {told}' if told else ''}."


def remarks(result: AccuracyResult) -> list[str]:
    """How it was done."""
    asked, optimizer = result.request, result.request.optimizer_spec
    named = f"{optimizer.name}, learning rate {optimizer.learning_rate:g}"
    if optimizer.name == "sgd":
        named += f", momentum {optimizer.momentum:g}"
    lines = [
        f"{result.trained:,} samples trained on, {result.tested:,} held out; {asked.seeds} seeds, "
        f"{asked.epochs} epochs, batches of {asked.batch:,}, {named}, {asked.processes} processes.",
        "Accuracy: after the last epoch, of the undivided network; mean over the seeds with Student's 95 % interval. "
        "Difference: from float32 in the same mode, seed by seed, with the interval of its mean. A type is told apart "
        "where that interval leaves out 0; of twenty types like float32 one would be. Within: the type's mean lies in "
        "float32's own interval.",
    ]
    if result.request.left_out():
        lines.append(
            f"Left out of model parallelism: {', '.join(result.request.left_out())}. What a message leaves out "
            "stays in a residual, which belongs to other samples than the next message."
        )
    return lines


def interval_text(interval: Interval) -> str:
    """A share and its interval in per cent."""
    return f"{100 * interval.mean:.2f} % ({100 * interval.low:.2f} to {100 * interval.high:.2f})"


def difference_text(row: Compared) -> str:
    """Points of accuracy beside float32."""
    if row.type == FLOAT32:
        return "–"
    low, high = 100 * row.difference.low, 100 * row.difference.high
    return f"{100 * row.difference.mean:+.2f} ({low:+.2f} to {high:+.2f})"


def accuracy_table(result: AccuracyResult) -> Table:
    """A row for each mode and type."""
    shown = Table(title=f"{result.request.model}: accuracy on {result.tested:,} samples held out")
    for name in ("mode", "type", "accuracy", "points beside float32", "within", ""):
        shown.add_column(name, justify="left" if name in ("mode", "type", "") else "right")
    for row in result.rows:
        told = "–" if row.type == FLOAT32 else "yes" if row.within else "no"
        cells = (row.mode, row.type, interval_text(row.accuracy), difference_text(row), told, row.conclusion)
        shown.add_row(*map(Text, cells))
    return shown
