"""Tables of measured kernels: their columns, their units, and the kernels that they stand for."""

import io
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from groundwork.control_characters import printable
from groundwork.errors import ConfigError
from groundwork.input_files import input_text
from groundwork.suggestions import did_you_mean
from hwprofiles.compute.kernels import ConvolutionWindow
from hwprofiles.measured.measured_tables import measured_table, measured_table_names
from studies.calibrate.measured_kernels import MeasuredKernel

if TYPE_CHECKING:
    import pandas as pd


_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
"""Units of times, as the end of a column's name; tables with another one, or several, are refused."""
_PRECISIONS = {
    "fp32": "float32",
    "tf32": "tf32",
    "fp16": "float16",
    "bf16": "bfloat16",
    "fp8": "float8",
    **{name: name for name in ("float64", "float32", "float16", "bfloat16", "float8")},
}
OPERAND_BYTES = {"float64": 8, "float32": 4, "tf32": 4, "float16": 2, "bfloat16": 2, "float8": 1}
"""Bytes of an operand in each arithmetic."""
_PHASE_COLUMNS = {"forward": "fwd", "activation_gradient": "bwd_data", "weight_gradient": "bwd_weight"}
_CONVOLUTION = (
    "in_w",
    "in_h",
    "in_c",
    "batch_n",
    "out_k",
    "filter_r_h",
    "filter_s_w",
    "pad_h",
    "pad_w",
    "stride_h",
    "stride_w",
)
_PRODUCT = ("m", "n", "k")
_MOST = 10**9
"""Largest size: products of three stay far below the largest float."""


def measurement_table(name: str) -> "pd.DataFrame":
    """Return a table of measurements: one that ships, by its name, or a CSV file.

    Raises:
        ConfigError: There is no such table, or the file is no CSV table.
    """
    if name in measured_table_names():
        return measured_table(name)
    if not name.endswith(".csv"):
        hint = did_you_mean(name, measured_table_names())
        raise ConfigError(f"measurements {name!r} must be a .csv or .json file, or a table that ships{hint}")
    import pandas as pd

    text = input_text(Path(name), "table of measurements", limit_mib=64)
    try:
        return pd.read_csv(io.StringIO(text))
    except (ValueError, pd.errors.ParserError) as error:
        raise ConfigError(f"table of measurements {name} is not CSV: {str(error).splitlines()[0]}") from None


def table_kernels(table: "pd.DataFrame", name: str) -> list[MeasuredKernel]:
    """Return the measured kernels of a table of convolutions or of matrix products.

    Convolutions have the columns of DeepBench and a time for each phase (``fwd_ms``, ``bwd_data_ms``,
    ``bwd_weight_ms``); products have ``m``, ``n``, ``k`` and one column ``time_us``, ``time_ms`` or ``time_s``, and may
    have ``a_trans`` and ``b_trans`` in column-major order: a transposed first operand is a forward product of
    frameworks, a transposed second one a weight gradient, neither an activation gradient.

    Raises:
        ConfigError: Columns are missing, a unit is unknown or ambiguous, or a value is not a positive number.
    """
    kinds: list[tuple[tuple[str, ...], Callable[[pd.DataFrame, str], Iterable[MeasuredKernel]]]] = [
        (_CONVOLUTION, _convolutions),
        (_PRODUCT, _products),
    ]
    for columns, read in kinds:
        if set(columns) <= set(table):
            return list(read(_with_sizes(table, columns, name), name))
    missing = [column for column in _CONVOLUTION if column not in table]
    raise ConfigError(
        f"table {name} must hold convolutions or products: it needs the columns {', '.join(_PRODUCT)} and a time,"
        f" or {', '.join(missing)} and times; got {', '.join(map(str, table.columns)) or 'none'}"
    )


def _with_sizes(table: "pd.DataFrame", columns: tuple[str, ...], name: str) -> "pd.DataFrame":
    """Return a table whose sizes are integers; others are refused."""
    import pandas as pd

    sizes = {}
    for column in columns:
        values = pd.to_numeric(table[column], errors="coerce")
        least = 0 if column.startswith("pad") else 1
        wrong = values.isna() | (values < least) | (values > _MOST) | (values % 1 != 0)
        if wrong.any():
            row = int(wrong.to_numpy().argmax())
            raise ConfigError(
                f"table {name}: {column} must be a whole number in {least} .. {_MOST}, got"
                f" {printable(str(table[column].tolist()[row]))[:40]!r} in row {row + 1}"
            )
        sizes[column] = values.astype("int64")
    return table.assign(**sizes)


def _seconds(table: "pd.DataFrame", stem: str, name: str, *, required: bool) -> "pd.Series | None":
    """Return the times of the one column ``<stem>_<unit>``, in seconds; missing values stay missing."""
    import pandas as pd

    found = [
        column for column in table if str(column).startswith(f"{stem}_") and str(column)[len(stem) + 1 :].isalpha()
    ]
    units = [str(column)[len(stem) + 1 :] for column in found]
    unknown = [column for column, unit in zip(found, units, strict=True) if unit not in _UNITS]
    if unknown and stem == "time":
        raise ConfigError(f"table {name}: unknown unit of {unknown[0]!r}; known: {', '.join(_UNITS)}")
    known = [column for column, unit in zip(found, units, strict=True) if unit in _UNITS]
    if len(known) > 1:
        raise ConfigError(f"table {name} mixes units: {' and '.join(map(str, known))}; keep one of them")
    if not known:
        if required:
            raise ConfigError(f"table {name} needs a column {stem}_s, {stem}_ms or {stem}_us; got none of them")
        return None
    values = pd.to_numeric(table[known[0]], errors="coerce")
    bad = (table[known[0]].notna() & values.isna()) | (values <= 0) | (values == math.inf)
    if bad.any():
        row = int(bad.to_numpy().argmax())
        raise ConfigError(
            f"table {name}: {known[0]} must be a number > 0, got {table[known[0]].tolist()[row]!r} in row {row + 1}"
        )
    return values * _UNITS[str(known[0]).rsplit("_", 1)[1]]


def precisions(table: "pd.DataFrame", name: str) -> list[str]:
    """Return the arithmetic of each row; float32 where the table does not say."""
    column = next((column for column in ("precision", "dtype") if column in table), None)
    if column is None:
        return ["float32"] * len(table)
    kinds = table[column].astype(str).str.partition("(")[0].str.strip()
    unknown = [kind for kind in kinds.unique() if kind not in _PRECISIONS]
    if unknown:
        raise ConfigError(f"table {name}: unknown {column} {unknown[0]!r}; known: {', '.join(_PRECISIONS)}")
    return [_PRECISIONS[kind] for kind in kinds]


def layout_priced(precision: str) -> str:
    """Return the order in memory for which a profile prices convolutions of an arithmetic, which has one price for all.

    Tensor cores read channels side by side: where they are not, libraries first copy the images.  Kernels of float32
    are made for channels in planes, as frameworks have them unless told otherwise.
    """
    return "channels-first" if precision in ("float32", "float64") else "channels-last"


def _products(table: "pd.DataFrame", name: str) -> Iterable[MeasuredKernel]:
    seconds = _seconds(table, "time", name, required=True)
    assert seconds is not None
    transposed = {"a_trans", "b_trans"} <= set(table)
    for row, time_s, precision in zip(table.itertuples(), seconds, precisions(table, name), strict=True):
        if time_s != time_s:  # a size that failed
            continue
        m, n, k = (int(getattr(row, size)) for size in _PRODUCT)
        phase = "forward"
        if transposed:
            phase = (
                "weight_gradient" if row.b_trans == "T" else "forward" if row.a_trans == "T" else "activation_gradient"
            )
        else:
            m, n = n, m  # y = x W^T in row-major order: the weight's outputs are the rows of the product
        moved = float(OPERAND_BYTES[precision] * (m * n + n * k + m * k))
        yield MeasuredKernel(
            phase=phase,
            rows=m,
            columns=n,
            depth=k,
            samples=n,
            memory_bytes=moved,
            time_s=time_s,
            family=f"{m}x{k}",
            source=name,
            precision=precision,
        )


def _convolutions(table: "pd.DataFrame", name: str) -> Iterable[MeasuredKernel]:
    times = {phase: _seconds(table, stem, name, required=False) for phase, stem in _PHASE_COLUMNS.items()}
    if all(column is None for column in times.values()):
        raise ConfigError(f"table {name} needs a column fwd_ms, bwd_data_ms or bwd_weight_ms; got none of them")
    kinds = precisions(table, name)
    layouts = table["layout"].tolist() if "layout" in table else list(map(layout_priced, kinds))
    for number, row in enumerate(table.itertuples()):
        for phase, column in times.items():
            measured = column is not None and column.iloc[number] == column.iloc[number]
            if column is not None and measured and layouts[number] == layout_priced(kinds[number]):
                yield _convolution(row, phase, float(column.iloc[number]), kinds[number], name)


def _convolution(row: object, phase: str, time_s: float, precision: str, name: str) -> MeasuredKernel:
    """Return one phase of a convolution as its implicit product."""
    width, height, into, batch, out, r, s, pad_h, pad_w, stride_h, stride_w = (
        int(getattr(row, column)) for column in _CONVOLUTION
    )
    rows, columns = (height + 2 * pad_h - r) // stride_h + 1, (width + 2 * pad_w - s) // stride_w + 1
    if rows < 1 or columns < 1:
        raise ConfigError(
            f"table {name}: filters must be no larger than the padded image of {height + 2 * pad_h} x "
            f"{width + 2 * pad_w}, got {r} x {s}"
        )
    positions = rows * columns
    window, stride = r * s, stride_h * stride_w
    plain = stride == 1
    sizes = {
        "forward": (out, batch * positions, into * window),
        "activation_gradient": (into, batch * positions, out * window),
        "weight_gradient": (out, into * window, batch * positions),
    }[phase]
    read = height if phase == "activation_gradient" else math.ceil(height * min(r / stride_h, 1.0))
    elements = batch * into * width * read + into * out * window + batch * out * positions
    return MeasuredKernel(
        phase=phase,
        rows=sizes[0],
        columns=sizes[1],
        depth=sizes[2],
        samples=batch,
        time_s=time_s,
        source=name,
        memory_bytes=float(OPERAND_BYTES[precision] * elements),
        precision=precision,
        family=f"{into}-{out} {r}x{s}/{stride_h}x{stride_w}",
        window=ConvolutionWindow(
            positions=window,
            stride=stride,
            winograd=plain and r == s == 3,
            fourier=plain and r == s > 3,
            one_dimensional=(r > 1) != (s > 1),
        ),
    )
