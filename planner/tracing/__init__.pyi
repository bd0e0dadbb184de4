from .exported import (
    trace_of as trace_of,
)
from .inputs import (
    InputSpec as InputSpec,
    input_specs as input_specs,
    one_sample_error as one_sample_error,
    with_two_samples as with_two_samples,
)
from .pt2_file import (
    trace_of_pt2 as trace_of_pt2,
)
from .trace import (
    Argument as Argument,
    Trace as Trace,
    TraceNode as TraceNode,
    TraceTensor as TraceTensor,
)
from .user_code import (
    built_module as built_module,
)
