from .recorded_memory import (
    recorded_memory as recorded_memory,
)
