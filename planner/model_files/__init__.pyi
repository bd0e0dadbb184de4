from .model_file import (
    check_model_path as check_model_path,
)
from .model_text import (
    model_text as model_text,
)
from .own_models import (
    is_own_model as is_own_model,
    own_model as own_model,
)
