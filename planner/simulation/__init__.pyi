from .additive_cost import (
    additive_s as additive_s,
    additive_terms as additive_terms,
    program_sync_s as program_sync_s,
)
from .collective_use import (
    CollectiveLinks as CollectiveLinks,
    carried_bytes as carried_bytes,
)
from .execution_models import (
    ITERATIONS as ITERATIONS,
    ProgramGraph as ProgramGraph,
    build_program_graph as build_program_graph,
)
from .graph_export import (
    write_replayed_graph as write_replayed_graph,
)
from .ladder import (
    ladder_s as ladder_s,
    steady_s as steady_s,
    upper_rungs_s as upper_rungs_s,
)
from .link_use import (
    LinkUse as LinkUse,
)
from .lower_bound import (
    arithmetic_s as arithmetic_s,
    busiest_s as busiest_s,
    iteration_bound as iteration_bound,
)
from .memory_over_time import (
    MemoryCurve as MemoryCurve,
    check_replay_fits as check_replay_fits,
    memory_curve as memory_curve,
    replay_that_fits as replay_that_fits,
)
from .message_overhead_use import (
    message_overheads_of as message_overheads_of,
)
from .program_replay import (
    Replay as Replay,
    Shares as Shares,
    iteration_rows as iteration_rows,
    last_waited_for as last_waited_for,
    replay as replay,
    stream_before as stream_before,
)
from .rank_spread import (
    late_deviations as late_deviations,
)
from .sensitivity import (
    Sensitivity as Sensitivity,
    sensitivities as sensitivities,
)
from .steady_path import (
    CriticalPath as CriticalPath,
    PathStep as PathStep,
    Stretch as Stretch,
    program_path as program_path,
)
from .transfer_pricing import (
    check_messages as check_messages,
    transfer_prices as transfer_prices,
)
