from .event_loop import (
    replay_of as replay_of,
)
from .initial import (
    initial_state as initial_state,
)
from .jit import (
    inner as inner,
)
from .numba_start import (
    spare_scipy as spare_scipy,
)
from .state import (
    FINISHED as FINISHED,
)
