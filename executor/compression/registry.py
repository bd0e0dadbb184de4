"""Registry of data types by name."""

from collections.abc import Mapping

from executor.compression.base import DataType
from executor.compression.baselines import FloatType, OneBit, Threshold
from executor.compression.table_types import TableType
from planner.compression.data_types import Compression, compression

DATA_TYPES: Mapping[str, type[DataType]] = {
    "dynamic-tree": TableType,
    "static-tree": TableType,
    "linear": TableType,
    "mantissa": TableType,
    "one-bit": OneBit,
    "threshold": Threshold,
    "float16": FloatType,
    "bfloat16": FloatType,
    "float32": FloatType,
}
"""Class of each type that ``planner.compression.data_types`` names."""


def data_type(spec: str | Compression, **parameters: object) -> DataType:
    """Make a data type.

    Args:
        spec: As for ``planner.compression.data_types.compression``, or its result.
        **parameters: As there; none where ``spec`` is no text.

    Raises:
        ConfigError: The type or a parameter is unknown (the message names the nearest), or a value breaks its rule.
    """
    checked = compression(spec if isinstance(spec, str) else spec.text, **parameters)
    return DATA_TYPES[checked.name](checked)
