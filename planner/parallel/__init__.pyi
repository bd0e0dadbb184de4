from .configurations import (
    PLACEMENTS as PLACEMENTS,
    ConfigSpace as ConfigSpace,
    Configuration as Configuration,
    Strategy as Strategy,
    all_configurations as all_configurations,
    part_bounds as part_bounds,
    placement_devices as placement_devices,
    space_of as space_of,
)
from .degrees import (
    Hybrid as Hybrid,
    check_hybrid as check_hybrid,
    hybrid_of as hybrid_of,
    is_hybrid as is_hybrid,
    largest_divisor as largest_divisor,
    split_layer as split_layer,
    split_list as split_list,
    stage_groups as stage_groups,
)
from .input_channel_split import (
    check_configuration as check_configuration,
    reducing_operation as reducing_operation,
    slices_of as slices_of,
    split_input_channels as split_input_channels,
)
from .micro_batches import (
    ORDERS as ORDERS,
    WHOLE_BATCH as WHOLE_BATCH,
    MicroBatching as MicroBatching,
    interleave_degree as interleave_degree,
    micro_batch_spaces as micro_batch_spaces,
    micro_batching_of as micro_batching_of,
    schedule_of as schedule_of,
)
from .named_rules import (
    NAMED as NAMED,
)
from .pipeline_schedule import (
    BACKWARD as BACKWARD,
    FORWARD as FORWARD,
    PIPELINE_SCHEDULES as PIPELINE_SCHEDULES,
    PipelineSchedule as PipelineSchedule,
)
from .recomputation import (
    KEEP_ACTIVATIONS as KEEP_ACTIVATIONS,
    SEGMENTS as SEGMENTS,
    Recompute as Recompute,
    recompute_of as recompute_of,
    segments_of as segments_of,
)
from .regions import (
    Regions as Regions,
    TransferRegions as TransferRegions,
    held_regions as held_regions,
    layout_keys as layout_keys,
    needed_regions as needed_regions,
    transfer_regions as transfer_regions,
)
from .shared_regions import (
    shard_rows as shard_rows,
    shared_regions as shared_regions,
    shared_transfers as shared_transfers,
)
from .strategies import (
    PIPELINE as PIPELINE,
    SEARCHED as SEARCHED,
    check_strategy as check_strategy,
    named_strategy as named_strategy,
    spaces_of as spaces_of,
)
from .strategy_file import (
    OWN as OWN,
    SUFFIXES as SUFFIXES,
    OwnStrategy as OwnStrategy,
    own_strategy as own_strategy,
)
