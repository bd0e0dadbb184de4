from .accuracy_command import (
    orrery_accuracy as orrery_accuracy,
)
from .compare_command import (
    orrery_compare as orrery_compare,
)
from .fidelity_command import (
    orrery_fidelity as orrery_fidelity,
    orrery_reproduce as orrery_reproduce,
)
from .lab_command import (
    lab_app as lab_app,
)
from .look_up_command import (
    orrery_clusters as orrery_clusters,
    orrery_completion as orrery_completion,
    orrery_devices as orrery_devices,
    orrery_import as orrery_import,
    orrery_models as orrery_models,
)
from .oracle_command import (
    orrery_oracle as orrery_oracle,
)
from .pages_command import (
    orrery_index as orrery_index,
    orrery_show as orrery_show,
    orrery_timeline as orrery_timeline,
)
from .plan_command import (
    orrery_plan as orrery_plan,
)
from .run_command import (
    orrery_run as orrery_run,
)
from .serve_command import (
    orrery_serve as orrery_serve,
)
from .simulate_command import (
    orrery_analyse as orrery_analyse,
    orrery_replay as orrery_replay,
    orrery_simulate as orrery_simulate,
)
from .streams_command import (
    orrery_streams as orrery_streams,
)
from .sweep_command import (
    orrery_results as orrery_results,
    orrery_sweep as orrery_sweep,
)
from .validate_command import (
    orrery_validate as orrery_validate,
)
