from .eight_bit_claims import (
    eight_bit_values as eight_bit_values,
)
from .paper_claims import (
    Claim as Claim,
    ComputedValue as ComputedValue,
)
from .papers import (
    reproduce as reproduce,
)
from .rows import (
    PaperRow as PaperRow,
)
