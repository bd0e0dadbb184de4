from .collective_library import (
    CollectiveLibrary as CollectiveLibrary,
    InSwitchSums as InSwitchSums,
    LibraryProtocol as LibraryProtocol,
)
from .copy_engines import (
    CopyEngines as CopyEngines,
)
from .device import (
    Device as Device,
)
from .device_graph import (
    DeviceGraph as DeviceGraph,
    Link as Link,
)
from .latency import (
    Latency as Latency,
)
from .memory_reserve import (
    GPU_RESERVE as GPU_RESERVE,
    MemoryReserve as MemoryReserve,
)
from .message_overhead import (
    MessageOverhead as MessageOverhead,
)
