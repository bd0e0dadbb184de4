from .plan_run import (
    PlanRun as PlanRun,
    default_stall_s as default_stall_s,
    run_plan as run_plan,
)
from .rank_entry import (
    run_rank as run_rank,
)
