from .answers import (
    Claim as Claim,
    ComputedValue as ComputedValue,
)
from .eight_bit_claims import (
    eight_bit_answers as eight_bit_answers,
)
from .papers import (
    reproduce as reproduce,
)
from .rows import (
    PaperRow as PaperRow,
)
