from .resume import (
    Checkpoints as Checkpoints,
)
