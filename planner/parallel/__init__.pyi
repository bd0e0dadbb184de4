from .configurations import (
    PLACEMENTS as PLACEMENTS,
    ConfigSpace as ConfigSpace,
    Configuration as Configuration,
    offered as offered,
    part_bounds as part_bounds,
    placed as placed,
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
    expanded as expanded,
    reducing as reducing,
    slices_of as slices_of,
)
from .micro_batches import (
    WHOLE as WHOLE,
    MicroBatching as MicroBatching,
    interleaved as interleaved,
    micro_batching_of as micro_batching_of,
    requested_micro_batching as requested_micro_batching,
    schedule_of as schedule_of,
    sub_spaces as sub_spaces,
)
from .pipeline_schedule import (
    BACKWARD as BACKWARD,
    FORWARD as FORWARD,
    PIPELINE_SCHEDULES as PIPELINE_SCHEDULES,
    PipelineSchedule as PipelineSchedule,
)
from .recomputation import (
    KEEP as KEEP,
    SEGMENTS as SEGMENTS,
    Recompute as Recompute,
    recompute_of as recompute_of,
    segments_of as segments_of,
)
from .regions import (
    Boxes as Boxes,
    Pieces as Pieces,
    held as held,
    layouts_of as layouts_of,
    needed as needed,
    pieces_of as pieces_of,
)
from .strategies import (
    NAMED as NAMED,
    PIPELINE as PIPELINE,
    SEARCHED as SEARCHED,
    SUFFIXES as SUFFIXES,
    Strategy as Strategy,
    check_strategy as check_strategy,
    named_strategy as named_strategy,
    spaces_of as spaces_of,
)
