from .scenarios import (
    Scenario as Scenario,
    WhatIf as WhatIf,
    standard_scenarios as standard_scenarios,
    whatif as whatif,
)
