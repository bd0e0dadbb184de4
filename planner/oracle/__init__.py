"""The oracle: ParaDL's closed forms of time, memory and limits, for every strategy and number of devices at once."""

from planner.oracle.datasets import DATASETS, samples_of
from planner.oracle.options import STRATEGIES, OracleOptions, device_counts, strategy_list
from planner.oracle.project import oracle
from planner.oracle.table import Limit, OracleRow, OracleTable, WireRow

__all__ = [
    "DATASETS",
    "STRATEGIES",
    "Limit",
    "OracleOptions",
    "OracleRow",
    "OracleTable",
    "WireRow",
    "device_counts",
    "oracle",
    "samples_of",
    "strategy_list",
]
