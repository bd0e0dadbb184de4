from .builder import (
    ModelBuilder as ModelBuilder,
)
from .registry import (
    MOST_SAMPLES as MOST_SAMPLES,
    check_no_code as check_no_code,
    load_model as load_model,
    model_names as model_names,
)
