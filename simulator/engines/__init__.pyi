from .engine import (
    prepare as prepare,
    simulate as simulate,
)
