from .copy_engine_use import (
    CopyEngineUses as CopyEngineUses,
    copy_engines_of as copy_engines_of,
)
from .network_routes import (
    ClusterRoutes as ClusterRoutes,
    routes_of_cluster as routes_of_cluster,
)
from .node_rings import (
    chain_order as chain_order,
    joined_directly as joined_directly,
    ring_orders as ring_orders,
)
from .route_levels import (
    RouteLevels as RouteLevels,
)
