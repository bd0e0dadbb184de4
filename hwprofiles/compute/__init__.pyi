from .compute_profile import (
    CODING_PLACES as CODING_PLACES,
    CODING_TASKS as CODING_TASKS,
    PROFILE_PHASES as PROFILE_PHASES,
    CodingSpeed as CodingSpeed,
    ComputeProfile as ComputeProfile,
    MeasuredParts as MeasuredParts,
)
from .kernel_occupancy import (
    READINGS as READINGS,
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
