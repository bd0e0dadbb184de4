"""The oracle: ParaDL's closed forms of time, memory and limits, for every strategy and number of devices at once."""

from planner.oracle.datasets import DATASETS, samples_of
from planner.oracle.options import STRATEGIES, OracleOptions, device_counts, strategy_list
from planner.oracle.project import oracle
from planner.oracle.table import Booking, Limit, OracleRow, OracleTable, Simulated, WireRow

__all__ = [
    "DATASETS",
    "STRATEGIES",
    "Booking",
    "Limit",
    "OracleOptions",
    "OracleRow",
    "OracleTable",
    "Simulated",
    "WireRow",
    "device_counts",
    "oracle",
    "samples_of",
    "strategy_list",
]
