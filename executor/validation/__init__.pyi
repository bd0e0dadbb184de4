from .validation_request import (
    ValidationRequest as ValidationRequest,
)
from .validation_result import (
    StrategyValidation as StrategyValidation,
    Validation as Validation,
)
from .validation_run import (
    validate as validate,
)
