from .cluster_catalogue import (
    ClusterSummary as ClusterSummary,
    cluster_names as cluster_names,
    cluster_path as cluster_path,
    describe_cluster as describe_cluster,
    load_cluster as load_cluster,
)
from .topology_table import (
    read_topo as read_topo,
)
