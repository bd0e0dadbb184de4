from .computation_graph import (
    LAYER_PHASES as LAYER_PHASES,
    ComputationGraph as ComputationGraph,
    Edge as Edge,
    Layer as Layer,
    Operation as Operation,
    SavedTensors as SavedTensors,
)
from .data_sources import (
    DATA as DATA,
    data_names as data_names,
    is_data as is_data,
)
from .layer_paths import (
    Block as Block,
    dependency_distances as dependency_distances,
    layer_blocks as layer_blocks,
)
from .parameters import (
    Parameter as Parameter,
    SharedParameter as SharedParameter,
    parameter_maps as parameter_maps,
)
from .shapes import (
    IN_CHANNEL as IN_CHANNEL,
    IntervalMap as IntervalMap,
    Shape as Shape,
)
