from .scenario_file import (
    read_scenarios as read_scenarios,
)
from .scenarios import (
    Scenario as Scenario,
    WhatIf as WhatIf,
    WhatIfRow as WhatIfRow,
    standard_scenarios as standard_scenarios,
    whatif as whatif,
)
