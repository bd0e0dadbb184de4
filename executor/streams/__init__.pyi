from .measure import (
    MeasuredStreams as MeasuredStreams,
    measure_streams as measure_streams,
)
from .measure_request import (
    CoreStreamsRequest as CoreStreamsRequest,
)
from .view import (
    as_stream_comparison as as_stream_comparison,
    measured_values as measured_values,
)
