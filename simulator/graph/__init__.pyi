from .graph_checks import (
    check_task_graph as check_task_graph,
)
from .memory_need import (
    MEMORY_LIMIT as MEMORY_LIMIT,
    check_free_memory as check_free_memory,
    check_replay_memory as check_replay_memory,
    engine_bytes as engine_bytes,
    graph_bytes as graph_bytes,
)
from .sharing import (
    TOLERANCE as TOLERANCE,
    max_min_rates as max_min_rates,
)
from .task_graph import (
    Schedule as Schedule,
    TaskGraph as TaskGraph,
    pack_rows as pack_rows,
)
