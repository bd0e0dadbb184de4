"""Headline, remarks and table of a study of accuracies, printed alike by the terminal and the page."""

from rich.table import Table

from executor.accuracy.accuracy_request import FLOAT32
from executor.accuracy.accuracy_result import AccuracyResult, Compared, Interval
from reports.tables.text_table import text_table

MODE_WORDS = {"data": "data parallel, gradients", "model": "model parallel, activations and their gradients"}
"""Description of each mode, and of the messages that it compresses."""


def accuracy_headline(result: AccuracyResult) -> str:
    """Return the finding in one sentence: the types that differ significantly from float32, and its accuracy."""
    rows = [row for row in result.rows if row.type != FLOAT32]
    different = [row for row in rows if not row.difference.low <= 0 <= row.difference.high]
    float32 = ", ".join(
        f"{row.mode} parallel {interval_text(row.accuracy)}" for row in result.rows if row.type == FLOAT32
    )
    if different:
        words = "; ".join(f"{row.type}, {row.mode} parallel, is {row.conclusion}" for row in different)
        finding = f"{len(different)} of {len(rows)} types and modes differ significantly from float32: {words}"
    else:
        finding = "No significant difference in accuracy from float32"
    return f"{finding}. {result.request.model} with float32: {float32}."


def remarks(result: AccuracyResult) -> list[str]:
    """Return the conditions of the study, in sentences."""
    request, optimizer = result.request, result.request.optimizer_spec
    named = f"{optimizer.name}, learning rate {optimizer.learning_rate:g}"
    if optimizer.name == "sgd":
        named += f", momentum {optimizer.momentum:g}"
    lines = [
        f"{result.trained:,} training samples, {result.tested:,} held out; {request.seeds} seeds, "
        f"{request.epochs} epochs, batches of {request.batch:,}, {named}, {request.processes} processes.",
        "Accuracy: after the last epoch, of the undivided network; mean over the seeds with Student's 95 % interval. "
        "Difference: from float32 in the same mode, seed by seed, with the interval of its mean. A type differs "
        "significantly if that interval does not contain 0; by chance one in twenty types would. Within: the type's "
        "mean lies in float32's own interval.",
    ]
    if result.request.left_out():
        lines.append(
            f"Not used in model parallelism: {', '.join(result.request.left_out())}. Their residual, what one message "
            "leaves out, belongs to other samples than the next message."
        )
    return lines


def interval_text(interval: Interval) -> str:
    """Return a mean and its interval in per cent."""
    return f"{100 * interval.mean:.2f} % ({100 * interval.low:.2f} to {100 * interval.high:.2f})"


def difference_text(row: Compared) -> str:
    """Return the difference from float32 in percentage points, with its interval."""
    if row.type == FLOAT32:
        return "–"
    low, high = 100 * row.difference.low, 100 * row.difference.high
    return f"{100 * row.difference.mean:+.2f} ({low:+.2f} to {high:+.2f})"


def accuracy_table(result: AccuracyResult) -> Table:
    """Return the table with a row for each mode and type."""
    rows = [
        (
            row.mode,
            row.type,
            interval_text(row.accuracy),
            difference_text(row),
            "–" if row.type == FLOAT32 else "yes" if row.within else "no",
            row.conclusion,
        )
        for row in result.rows
    ]
    headers = ("mode", "type", "accuracy", "difference [points]", "within", "")
    title = f"{result.request.model}: accuracy on {result.tested:,} held-out samples"
    return text_table(title, headers, rows, words=(0, 1, 5))
