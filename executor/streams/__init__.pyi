from .measure import (
    measure_streams as measure_streams,
)
from .measure_request import (
    CoreStreamsRequest as CoreStreamsRequest,
)
from .stream_results import (
    MeasuredStreams as MeasuredStreams,
)
from .view import (
    as_stream_comparison as as_stream_comparison,
    measured_values as measured_values,
)
