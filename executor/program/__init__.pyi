from .buckets import (
    Chain as Chain,
    chains_of as chains_of,
    joined_sums as joined_sums,
    longest_bytes as longest_bytes,
)
from .consumers import (
    Consumers as Consumers,
)
from .rank_program import (
    Delivered as Delivered,
    Input as Input,
    LayerUnit as LayerUnit,
    Message as Message,
    RankProgram as RankProgram,
    region_messages_of as region_messages_of,
)
from .recorder import (
    Measured as Measured,
    Recorder as Recorder,
)
