from .compute_profile import (
    CODEC_TARGETS as CODEC_TARGETS,
    CODEC_TASKS as CODEC_TASKS,
    PROFILE_PHASES as PROFILE_PHASES,
    UNDER_USED as UNDER_USED,
    CodecSpeed as CodecSpeed,
    ComputeProfile as ComputeProfile,
    Efficiency as Efficiency,
    MeasuredParts as MeasuredParts,
)
from .convolution_efficiency import (
    ConvolutionEfficiency as ConvolutionEfficiency,
    HalfSizes as HalfSizes,
)
from .fused_kernels import (
    FusedEfficiency as FusedEfficiency,
    FusedKernels as FusedKernels,
    attention_kernels as attention_kernels,
    elementwise_kernels as elementwise_kernels,
    expert_kernels as expert_kernels,
    norm_kernels as norm_kernels,
)
from .fused_times import (
    fused_s as fused_s,
)
from .kernel_occupancy import (
    OCCUPANCY_MODELS as OCCUPANCY_MODELS,
    launch_of as launch_of,
    occupancy as occupancy,
)
from .kernel_table import (
    KernelTable as KernelTable,
    TableRows as TableRows,
)
from .kernels import (
    ConvolutionWindow as ConvolutionWindow,
    Kernels as Kernels,
)
from .launch import (
    Launch as Launch,
)
from .profile_file import (
    ProfileFile as ProfileFile,
    catalogue as catalogue,
    load_profile as load_profile,
    profile_in as profile_in,
    profile_names as profile_names,
    profile_path as profile_path,
)
from .profile_summary import (
    ProfileSummary as ProfileSummary,
    describe_profile as describe_profile,
)
