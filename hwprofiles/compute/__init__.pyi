from .compute_profile import (
    CODEC_TARGETS as CODEC_TARGETS,
    CODEC_TASKS as CODEC_TASKS,
    PROFILE_PHASES as PROFILE_PHASES,
    CodecSpeed as CodecSpeed,
    ComputeProfile as ComputeProfile,
    MeasuredParts as MeasuredParts,
)
from .kernel_occupancy import (
    OCCUPANCY_MODELS as OCCUPANCY_MODELS,
    launch_of as launch_of,
    occupancy as occupancy,
)
from .kernels import (
    Kernels as Kernels,
)
from .launch import (
    Launch as Launch,
)
from .profile_file import (
    catalogue as catalogue,
    load_profile as load_profile,
)
