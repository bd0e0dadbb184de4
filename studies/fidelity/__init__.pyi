from .fidelity_run import (
    judged_rows as judged_rows,
)
from .fidelity_table import (
    ErrorSummary as ErrorSummary,
    FidelityTable as FidelityTable,
    summarised as summarised,
)
from .recorded_results import (
    RECORDED as RECORDED,
    recorded_text as recorded_text,
    worse_lines as worse_lines,
)
