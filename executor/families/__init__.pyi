from .published import (
    configured_model as configured_model,
)
