from .critical_paths import (
    paths_of as paths_of,
)
from .decomposition import (
    Decomposed as Decomposed,
    with_measured as with_measured,
)
from .delayed_memory import (
    bounded as bounded,
    held_bytes as held_bytes,
)
from .many_devices import (
    ManyDevices as ManyDevices,
    arrange as arrange,
)
from .schedule_comparison import (
    BINS as BINS,
    ScheduleResult as ScheduleResult,
    StreamComparison as StreamComparison,
    compare_schedules as compare_schedules,
    whole_program as whole_program,
    work_of as work_of,
)
from .stream_plan import (
    StreamPlan as StreamPlan,
    replay_streams as replay_streams,
    streamed_graph as streamed_graph,
)
from .stream_request import (
    OccupancyModel as OccupancyModel,
    PathOptions as PathOptions,
    StreamRequest as StreamRequest,
)
from .stream_schedules import (
    schedule as schedule,
)
