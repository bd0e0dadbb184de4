from .rank_watchdog import (
    guarded as guarded,
)
