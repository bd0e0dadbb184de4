from .base import (
    NO_BUFFERS as NO_BUFFERS,
    PartContext as PartContext,
    PartLayer as PartLayer,
    TrainingStep as TrainingStep,
)
from .factory import (
    part_layer as part_layer,
)
from .parameters import (
    parameter_box as parameter_box,
)
