from .commands import (
    LabStatus as LabStatus,
    down as down,
    status as status,
    up as up,
)
from .inside import (
    is_inside as is_inside,
    lab_hosts as lab_hosts,
    run_inside as run_inside,
)
from .namespaces import (
    LabHosts as LabHosts,
)
from .wiring import (
    lab_cluster as lab_cluster,
)
