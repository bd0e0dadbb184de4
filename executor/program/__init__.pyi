from .buckets import (
    Reduction as Reduction,
    gradient_buckets as gradient_buckets,
    largest_bucket_bytes as largest_bucket_bytes,
    reductions_of as reductions_of,
)
from .input_consumers import (
    Consumers as Consumers,
)
from .messages import (
    Message as Message,
    region_messages_of as region_messages_of,
)
from .rank_parts import (
    InputKey as InputKey,
    LayerUnit as LayerUnit,
)
from .rank_program import (
    InputTensor as InputTensor,
    RankProgram as RankProgram,
)
from .recorder import (
    RankMeasurement as RankMeasurement,
    Recorder as Recorder,
)
