from .compression_choice import (
    choose_compressed_layers as choose_compressed_layers,
)
from .gradient_order import (
    check_gradient_sync_order as check_gradient_sync_order,
    order_gradient_syncs as order_gradient_syncs,
)
from .hybrid_search import (
    HYBRID as HYBRID,
    first_hybrids as first_hybrids,
    search_hybrids as search_hybrids,
)
from .layerwise import (
    LayerwiseResult as LayerwiseResult,
    search_layerwise as search_layerwise,
)
from .near_best_strategies import (
    near_best as near_best,
)
from .pipeline_stages import (
    balanced as balanced,
    stage_bounds as stage_bounds,
)
from .pipeline_strategy import (
    Pipeline as Pipeline,
    has_stages as has_stages,
    micro_batch_parts as micro_batch_parts,
    strategy_and_micro_batching as strategy_and_micro_batching,
)
from .refinement import (
    Refined as Refined,
    refine as refine,
)
from .search_tables import (
    search_problem as search_problem,
)
