from .compression_points import (
    CompressionPoint as CompressionPoint,
)
from .compression_request import (
    CompressionRequest as CompressionRequest,
)
from .compression_sweep import (
    CompressionSweep as CompressionSweep,
    sweep_compression as sweep_compression,
)
from .element_cost import (
    EIGHT_BIT_COST as EIGHT_BIT_COST,
    FLOAT32_COST as FLOAT32_COST,
    ElementCost as ElementCost,
)
from .lists import (
    type_list as type_list,
)
from .lowered_iteration import (
    machine_iteration_s as machine_iteration_s,
)
from .machine import (
    machine_speedup as machine_speedup,
    machine_sync_s as machine_sync_s,
)
from .many_machines import (
    Interpretation as Interpretation,
    Setting as Setting,
    exposed_s as exposed_s,
    gradient_sync_s as gradient_sync_s,
    single_pass_s as single_pass_s,
    sub_batch_times as sub_batch_times,
)
from .paper_tables import (
    BASELINES_S as BASELINES_S,
    BITS as BITS,
    DEVICES_PER_MACHINE as DEVICES_PER_MACHINE,
    GRADIENT_S as GRADIENT_S,
    MACHINES as MACHINES,
    PASS_BYTES_PER_S as PASS_BYTES_PER_S,
    alexnet as alexnet,
    linear_layers as linear_layers,
    machine_gradient_s as machine_gradient_s,
    pass_table as pass_table,
    read_table as read_table,
)
from .thresholds import (
    BEST as BEST,
    Crossing as Crossing,
)
from .transfer_graphs import (
    SubBatchGraph as SubBatchGraph,
    all_to_all_s as all_to_all_s,
    in_turn_s as in_turn_s,
    scheme_s as scheme_s,
    serial_pass_s as serial_pass_s,
)
