from .facts import (
    BELOW_HOST as BELOW_HOST,
    LEVEL_NAMES as LEVEL_NAMES,
    Card as Card,
    CardList as CardList,
    Collectives as Collectives,
    Facts as Facts,
    Gpu as Gpu,
    GpuList as GpuList,
    PairRates as PairRates,
    SwitchTree as SwitchTree,
    Topology as Topology,
)
from .recognise import (
    is_cluster_file as is_cluster_file,
    read_facts as read_facts,
)
from .topology_table import (
    topology_of_table as topology_of_table,
)
