from .activations import (
    activate_ as activate_,
    activation_backward as activation_backward,
)
from .layout import (
    channels_last as channels_last,
    laid_out as laid_out,
    laid_out_as as laid_out_as,
    memory_format as memory_format,
    memory_order as memory_order,
)
from .products import (
    Product as Product,
    product_of as product_of,
)
from .windows import (
    cropped as cropped,
    padded as padded,
    windows_of as windows_of,
)
