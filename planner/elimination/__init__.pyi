from .best_strategies import (
    Ranked as Ranked,
    k_best as k_best,
)
from .bounds import (
    SLACK as SLACK,
    edge_bounds as edge_bounds,
    keep_within as keep_within,
    relax as relax,
)
from .depth_first_search import (
    depth_first as depth_first,
)
from .eliminate_nodes import (
    eliminate as eliminate,
)
from .elimination_state import (
    GraphTooWideError as GraphTooWideError,
)
from .search_problem import (
    SearchProblem as SearchProblem,
    TensorCost as TensorCost,
    restrict as restrict,
    strategy_cost as strategy_cost,
)
from .wide_search import (
    WIDE_LIMIT_SUMS as WIDE_LIMIT_SUMS,
    FoundStrategy as FoundStrategy,
    search_wide as search_wide,
    whole_choice as whole_choice,
)
