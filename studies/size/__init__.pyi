from .budget import (
    Budget as Budget,
    best_for_budget as best_for_budget,
)
from .deadline import (
    fewest_devices as fewest_devices,
)
from .memory_limit import (
    largest_batch as largest_batch,
)
from .network import (
    slowest_network as slowest_network,
)
from .offers import (
    best_offer as best_offer,
)
from .size_answer import (
    CurvePoint as CurvePoint,
    SizeAnswer as SizeAnswer,
)
from .size_requests import (
    BudgetRequest as BudgetRequest,
    SubjectRequest as SubjectRequest,
    TrainingRequest as TrainingRequest,
)
from .typed_values import (
    duration_s as duration_s,
    read_prices as read_prices,
)
