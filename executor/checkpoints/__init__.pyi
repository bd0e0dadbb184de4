from .module_state_save import (
    save_module_state as save_module_state,
)
from .resume import (
    Checkpoints as Checkpoints,
)
