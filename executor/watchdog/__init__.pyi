from .rank_watchdog import (
    watched as watched,
)
