from .base import (
    BATCH_STATISTICS as BATCH_STATISTICS,
    ELEMENT_BYTES as ELEMENT_BYTES,
    Part as Part,
)
from .checks import (
    check_int as check_int,
    position_dims as position_dims,
)
from .computation import (
    POINTWISE as POINTWISE,
    Constant as Constant,
    DimFactor as DimFactor,
    Operand as Operand,
    Plain as Plain,
    Step as Step,
    axis_of as axis_of,
    parse_axis as parse_axis,
)
from .convolution import (
    Convolution as Convolution,
)
from .dropout import (
    Dropout as Dropout,
)
from .joining import (
    Add as Add,
    Concat as Concat,
)
from .linear import (
    Linear as Linear,
)
from .loss import (
    Loss as Loss,
)
from .mapped import (
    Mapped as Mapped,
)
from .normalisation import (
    BatchNorm as BatchNorm,
    LocalResponseNorm as LocalResponseNorm,
)
from .partial import (
    PartialProduct as PartialProduct,
    PartialSum as PartialSum,
    Reducing as Reducing,
    undivided as undivided,
)
from .pooling import (
    GlobalPooling as GlobalPooling,
    Pooling as Pooling,
)
from .products import (
    Attention as Attention,
    TensorProduct as TensorProduct,
)
from .rearrangement import (
    Rearrangement as Rearrangement,
)
from .streaming import (
    Elementwise as Elementwise,
    Embedding as Embedding,
    FeatureNorm as FeatureNorm,
    TensorReduction as TensorReduction,
    Unknown as Unknown,
)
