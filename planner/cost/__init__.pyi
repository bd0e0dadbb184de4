from .all_reduce import (
    GRADIENT_SYNCS as GRADIENT_SYNCS,
    SyncChoice as SyncChoice,
    choose_all_reduce as choose_all_reduce,
    group_rounds as group_rounds,
    layer_choice as layer_choice,
)
from .applied_strategy import (
    applied as applied,
)
from .codec_time import (
    ACTIVATIONS as ACTIVATIONS,
    GRADIENTS as GRADIENTS,
    CodecWork as CodecWork,
    codec_s as codec_s,
    compression_of as compression_of,
    decompression_of as decompression_of,
)
from .compressed_sync import (
    compressed_all_reduce as compressed_all_reduce,
    compressed_choice as compressed_choice,
    compressed_choices as compressed_choices,
    gradient_sync_choices as gradient_sync_choices,
    groups_of as groups_of,
)
from .compute_time import (
    kernel_s as kernel_s,
    stored_kernels as stored_kernels,
)
from .conditions import (
    IDEAL_CONDITIONS as IDEAL_CONDITIONS,
    Conditions as Conditions,
    declared_sync as declared_sync,
)
from .cost_model import (
    CostModel as CostModel,
)
from .framework import (
    Framework as Framework,
    framework_of as framework_of,
)
from .library_rounds import (
    library_collective_s as library_collective_s,
)
from .link_loads import (
    LinkLoads as LinkLoads,
)
from .transfer_time import (
    EdgeTable as EdgeTable,
)
from .under_used import (
    under_used_layers as under_used_layers,
)
