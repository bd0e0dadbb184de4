from .base import (
    NOWHERE as NOWHERE,
    PartContext as PartContext,
    PartLayer as PartLayer,
    TrainingStep as TrainingStep,
)
from .factory import (
    parameter_box as parameter_box,
    part_layer as part_layer,
)
