"""Collectives as rounds of point-to-point messages: what pricing adds up and the engines replay."""

from simulator.collectives.messages import Messages, messages_of
from simulator.collectives.rounds import Round
from simulator.collectives.schemes import ALL_GATHERS, ALL_REDUCES, BROADCASTS, REDUCE_SCATTERS, all_reduce, rank_rounds
from simulator.collectives.servers import all_to_all

__all__ = [
    "ALL_GATHERS",
    "ALL_REDUCES",
    "BROADCASTS",
    "REDUCE_SCATTERS",
    "Messages",
    "Round",
    "all_reduce",
    "all_to_all",
    "messages_of",
    "rank_rounds",
]
