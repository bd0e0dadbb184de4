from .changed_links import (
    relinked as relinked,
)
from .input_layouts import (
    InputLayout as InputLayout,
    input_layouts_of as input_layouts_of,
)
from .lower_strategy import (
    lower as lower,
)
from .program import (
    KINDS as KINDS,
    Collective as Collective,
    Program as Program,
)
from .send_phases import (
    SendPhases as SendPhases,
    phases as phases,
    program_order as program_order,
)
from .unit_times import (
    UnitTimes as UnitTimes,
    unit_of as unit_of,
)
