from .chakra_graph import (
    chakra_graph as chakra_graph,
)
from .chakra_program import (
    chakra_traces as chakra_traces,
)
from .traced_plan import (
    TracedPlan as TracedPlan,
    traced_plan as traced_plan,
)
