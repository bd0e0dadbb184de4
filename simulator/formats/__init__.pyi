from .chakra import (
    CHAKRA_COLLECTIVES as CHAKRA_COLLECTIVES,
    ChakraNode as ChakraNode,
    read_chakra as read_chakra,
    write_chakra as write_chakra,
)
from .chrome_trace import (
    write_trace as write_trace,
)
from .graph_file import (
    read_graph as read_graph,
    write_graph as write_graph,
    write_schedule as write_schedule,
)
