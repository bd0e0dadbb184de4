"""Data types of messages: 8 bits, one bit, a threshold, half-width floats; on processors and GPUs."""

from executor.compression.base import DataType, Encoded
from executor.compression.errors import Distribution, ErrorRow, error_table, mean_errors
from executor.compression.registry import DATA_TYPES, data_type
from executor.compression.table_types import TableType
from executor.compression.tables import Table, table_of

__all__ = [
    "DATA_TYPES",
    "DataType",
    "Distribution",
    "Encoded",
    "ErrorRow",
    "Table",
    "TableType",
    "data_type",
    "error_table",
    "mean_errors",
    "table_of",
]
