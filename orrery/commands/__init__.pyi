from .accuracy_command import (
    accuracy as accuracy,
)
from .lab_command import (
    lab as lab,
)
from .oracle_command import (
    oracle as oracle,
)
from .pages_command import (
    index as index,
    show as show,
    timeline as timeline,
)
from .probe_command import (
    probe as probe,
)
from .reproduce_command import (
    reproduce as reproduce,
)
from .run_command import (
    run as run,
)
from .streams_command import (
    streams as streams,
)
from .sweep_command import (
    results as results,
    sweep as sweep,
)
from .validate_command import (
    validate as validate,
)
from .whatif_command import (
    whatif as whatif,
)
