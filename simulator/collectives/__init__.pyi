from .messages import (
    Messages as Messages,
    messages_of as messages_of,
)
from .parallel_rings import (
    RING_COLLECTIVES as RING_COLLECTIVES,
    chain_rounds as chain_rounds,
    parallel_rings as parallel_rings,
)
from .rounds import (
    Round as Round,
    Traffic as Traffic,
    round_of as round_of,
)
from .schemes import (
    ALL_GATHERS as ALL_GATHERS,
    ALL_REDUCES as ALL_REDUCES,
    rank_rounds as rank_rounds,
)
