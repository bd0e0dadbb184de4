from .registry import (
    load_model as load_model,
    model_names as model_names,
)
