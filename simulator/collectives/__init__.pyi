from .messages import (
    Messages as Messages,
    messages_of as messages_of,
)
from .rounds import (
    Round as Round,
)
from .schemes import (
    ALL_GATHERS as ALL_GATHERS,
    ALL_REDUCES as ALL_REDUCES,
    rank_rounds as rank_rounds,
)
