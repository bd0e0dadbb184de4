from .machine_file import (
    MachineFile as MachineFile,
    machine_file as machine_file,
)
from .topology_graph import (
    read_topo as read_topo,
)
from .written_cluster import (
    write_cluster_file as write_cluster_file,
)
