from .boxes import (
    Box as Box,
    whole_box as whole_box,
)
from .devices import (
    DTYPES as DTYPES,
    ComputeDevice as ComputeDevice,
    Handle as Handle,
    Lane as Lane,
    Mark as Mark,
    device_of as device_of,
)
from .lowered_programs import (
    program_of as program_of,
)
from .module_state import (
    RUNNING as RUNNING,
    buffer_keys as buffer_keys,
    check_keys as check_keys,
    check_module_state as check_module_state,
    norm_prefix as norm_prefix,
    read_module_state as read_module_state,
    with_tied as with_tied,
)
from .optimizer_spec import (
    OptimizerSpec as OptimizerSpec,
)
from .optimizers import (
    Optimizer as Optimizer,
    make_optimizer as make_optimizer,
)
from .parameter_init import (
    initial_parameters as initial_parameters,
)
from .positional_random import (
    key_of as key_of,
    uniform as uniform,
)
from .predicted_memory import (
    predicted_bytes as predicted_bytes,
)
from .requirements import (
    check_torch as check_torch,
)
from .run_options import (
    JOIN_BYTES as JOIN_BYTES,
    RunOptions as RunOptions,
    read_options as read_options,
    write_options as write_options,
)
from .samples import (
    BatchSamples as BatchSamples,
)
from .typed_lists import (
    typed_data_types as typed_data_types,
    typed_strategies as typed_strategies,
    typed_words as typed_words,
)
