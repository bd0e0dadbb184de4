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
from .likely_times import (
    RECORDED as RECORDED,
    TimeParts as TimeParts,
    likely_ratio as likely_ratio,
    likely_s as likely_s,
    told_apart as told_apart,
)
from .prediction_parts import (
    parts_of_replay as parts_of_replay,
    parts_of_strategy as parts_of_strategy,
)
from .recorded_results import (
    recorded_text as recorded_text,
    worse_lines as worse_lines,
)
