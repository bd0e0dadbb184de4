from .bucketed_sync import (
    BucketedSync as BucketedSync,
)
from .compressed_messages import (
    CompressedMessages as CompressedMessages,
)
from .connections import (
    Connections as Connections,
    Post as Post,
    connections_for as connections_for,
)
from .gradient_sync import (
    GradientSync as GradientSync,
    SyncOptions as SyncOptions,
)
from .ordered_sync import (
    OrderedSync as OrderedSync,
)
from .received_regions import (
    ReceivedRegions as ReceivedRegions,
)
from .reduction import (
    Reducer as Reducer,
)
from .transport import (
    Transport as Transport,
    transport_of as transport_of,
)
