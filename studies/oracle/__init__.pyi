from .datasets import (
    samples_of as samples_of,
)
from .oracle_request import (
    STRATEGIES as STRATEGIES,
    OracleRequest as OracleRequest,
)
from .oracle_table import (
    OracleRow as OracleRow,
    OracleTable as OracleTable,
)
from .projection import (
    oracle as oracle,
)
