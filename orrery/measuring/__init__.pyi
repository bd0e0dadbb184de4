from .calibrate_command import (
    orrery_calibrate as orrery_calibrate,
)
from .chakra_command import (
    chakra_app as chakra_app,
)
from .probe_command import (
    orrery_probe as orrery_probe,
)
from .read_command import (
    orrery_read as orrery_read,
)
from .trace_command import (
    orrery_trace as orrery_trace,
)
