from .base import (
    NO_BUFFERS as NO_BUFFERS,
    PartContext as PartContext,
    PartLayer as PartLayer,
    TrainingStep as TrainingStep,
)
from .factory import (
    parameter_box as parameter_box,
    part_layer as part_layer,
)
