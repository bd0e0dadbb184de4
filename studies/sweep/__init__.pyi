from .local import (
    DIED as DIED,
    compute_in_processes as compute_in_processes,
)
from .store import (
    Store as Store,
)
from .stored_results import (
    exported as exported,
    priced as priced,
    result_table as result_table,
)
from .sweep_file import (
    MOST_POINTS as MOST_POINTS,
    read_sweep as read_sweep,
)
from .sweep_run import (
    run_sweep as run_sweep,
)
