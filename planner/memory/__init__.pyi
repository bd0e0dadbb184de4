from .buffers import (
    BUFFERS as BUFFERS,
    Buffers as Buffers,
)
from .cpu_backend import (
    CHANNELS_LAST_POSITIONS as CHANNELS_LAST_POSITIONS,
    MESSAGE_JOIN_BYTES as MESSAGE_JOIN_BYTES,
    PAIR_BYTES as PAIR_BYTES,
    GradientForm as GradientForm,
    KernelPositions as KernelPositions,
    gradient_forms as gradient_forms,
)
from .fit_advice import (
    fitting_changes as fitting_changes,
)
from .lifetimes import (
    BufferLifetimes as BufferLifetimes,
)
from .memory_policy import (
    MOMENTUM as MOMENTUM,
    MemoryPolicy as MemoryPolicy,
)
from .peak_memory import (
    COPIES_OF_PARAMETERS as COPIES_OF_PARAMETERS,
    check_plan_memory as check_plan_memory,
    held_over_time as held_over_time,
    peak_by_kind_bytes as peak_by_kind_bytes,
    peak_memory_bytes as peak_memory_bytes,
)
