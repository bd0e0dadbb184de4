from .clocks import (
    clock_offset_s as clock_offset_s,
)
from .confidence import (
    CONFIDENCE as CONFIDENCE,
)
from .gathered_tasks import (
    gather_tasks as gather_tasks,
)
from .measured_run import (
    MEASUREMENT as MEASUREMENT,
    WARM_UP as WARM_UP,
    Measurement as Measurement,
    join as join,
    read_measurement as read_measurement,
)
from .memory_meter import (
    ALLOCATED as ALLOCATED,
    AllocationMeter as AllocationMeter,
)
