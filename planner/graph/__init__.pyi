from .computation_graph import (
    LAYER_PHASES as LAYER_PHASES,
    ComputationGraph as ComputationGraph,
    Edge as Edge,
    Layer as Layer,
    Operation as Operation,
    Parameter as Parameter,
    SavedTensors as SavedTensors,
)
from .layer_paths import (
    Block as Block,
    dependency_distances as dependency_distances,
    layer_blocks as layer_blocks,
)
from .shapes import (
    IN_CHANNEL as IN_CHANNEL,
    IntervalMap as IntervalMap,
    Shape as Shape,
)
