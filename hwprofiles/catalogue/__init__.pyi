from .cluster_catalogue import (
    ClusterSummary as ClusterSummary,
    cluster_names as cluster_names,
    cluster_of_content as cluster_of_content,
    cluster_path as cluster_path,
    cluster_with as cluster_with,
    describe_cluster as describe_cluster,
    load_cluster as load_cluster,
    load_surviving as load_surviving,
)
from .cluster_reader import (
    read_tree as read_tree,
)
from .library_section import (
    library_of_section as library_of_section,
)
