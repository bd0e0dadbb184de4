from .fidelity_run import (
    judged_rows as judged_rows,
)
from .fidelity_table import (
    ErrorSummary as ErrorSummary,
    FidelityTable as FidelityTable,
    summarised as summarised,
)
from .likely_times import (
    RECORDED as RECORDED,
    TimeParts as TimeParts,
    likely_s as likely_s,
    told_apart as told_apart,
)
from .recorded_results import (
    recorded_text as recorded_text,
    worse_lines as worse_lines,
)
