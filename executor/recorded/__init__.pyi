from .calls import (
    channels_apart as channels_apart,
    check_call as check_call,
)
from .computation import (
    Computation as Computation,
    ComputationInputs as ComputationInputs,
)
from .views import (
    is_dense as is_dense,
)
