from .accuracy_request import (
    FLOAT32 as FLOAT32,
    AccuracyRequest as AccuracyRequest,
)
from .accuracy_result import (
    AccuracyResult as AccuracyResult,
    Compared as Compared,
    Interval as Interval,
)
from .accuracy_run import (
    accuracy_study as accuracy_study,
)
