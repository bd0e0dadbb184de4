from .calibration import (
    Calibrated as Calibrated,
    calibrated as calibrated,
)
from .cross_validation import (
    HeldOutErrors as HeldOutErrors,
)
from .device_sheets import (
    base_content as base_content,
    device_labels as device_labels,
    device_names as device_names,
)
from .fused_tables import (
    table_fused as table_fused,
)
from .kernel_tables import (
    layout_priced as layout_priced,
)
from .library_fit import (
    fitted_library as fitted_library,
)
from .measurements import (
    read_measurements as read_measurements,
)
from .network_tables import (
    iteration_s as iteration_s,
)
from .profile_content import (
    write_content as write_content,
)
