from .error_summary import (
    ErrorSummary as ErrorSummary,
    held_out_errors as held_out_errors,
)
from .fidelity_run import (
    judged_rows as judged_rows,
)
from .fidelity_table import (
    FidelityTable as FidelityTable,
    summarised as summarised,
)
from .recorded_results import (
    recorded_text as recorded_text,
    worse_lines as worse_lines,
)
