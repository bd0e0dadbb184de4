from .model_file import (
    read_kept_file as read_kept_file,
    read_model_file as read_model_file,
)
from .model_text import (
    model_text as model_text,
)
from .own_models import (
    is_own_model as is_own_model,
    names_code as names_code,
    own_model as own_model,
)
