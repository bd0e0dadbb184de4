from .oracle_options import (
    STRATEGIES as STRATEGIES,
    OracleOptions as OracleOptions,
    device_counts as device_counts,
    strategy_list as strategy_list,
)
from .oracle_table import (
    OracleRow as OracleRow,
    OracleTable as OracleTable,
)
from .projection import (
    oracle as oracle,
)
