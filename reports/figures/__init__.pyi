from .agreement import (
    agreement_figure as agreement_figure,
)
from .breakdown import (
    breakdown_figure as breakdown_figure,
)
from .fidelity import (
    fidelity_figure as fidelity_figure,
    printed_figure as printed_figure,
)
from .figure_of import (
    figure as figure,
)
from .ladder import (
    ladder_figure as ladder_figure,
    ladder_models as ladder_models,
    plain_ladder as plain_ladder,
)
from .memory import (
    memory_figure as memory_figure,
)
from .oracle import (
    epoch_figure as epoch_figure,
    iteration_figure as iteration_figure,
    oracle_memory_figure as oracle_memory_figure,
)
from .size import (
    size_figure as size_figure,
)
from .streams import (
    ladder_of_streams as ladder_of_streams,
    occupancy_figure as occupancy_figure,
    timelines_figure as timelines_figure,
)
from .validation import (
    measured_ladder_figure as measured_ladder_figure,
    task_figure as task_figure,
)
from .whatif import (
    whatif_figure as whatif_figure,
)
