"""Traces of other programs, as inputs of ``orrery trace`` and ``orrery chakra``."""

import json
from pathlib import Path

TRACE_COMMANDS = {
    "trace": "trace plan.json kineto.json --out new.html",
    "chakra write": "chakra write plan.json --out new",
    "chakra read": "chakra read rank0.et rank1.et --cluster titanx-4 --out new.json",
}
TRACE_FILES = {"trace": "kineto.json", "chakra write": "plan.json", "chakra read": "rank0.et"}
"""The file of each command that is spoiled."""


def _event(name: str, start_us: float, duration_us: float, sequence: int, dims: list[list[int]]) -> dict[str, object]:
    """Return an operation of a trace."""
    args = {"Sequence number": sequence, "Input Dims": dims, "External id": sequence}
    place = {"ph": "X", "cat": "cpu_op", "pid": 1, "tid": 1}
    return place | {"name": name, "ts": start_us, "dur": duration_us, "args": args}


def put_traces(folder: Path) -> None:
    """Put a valid trace of every kind into a folder."""
    from simulator.formats.chakra import ChakraNode, write_chakra

    engine = "autograd::engine::evaluate_function: "
    events = [
        _event("aten::conv2d", 0.5, 10, 0, [[2, 1, 28, 28], [20, 1, 5, 5]]),
        _event("aten::linear", 11, 4, 1, [[2, 800], [500, 800]]),
        _event(f"{engine}AddmmBackward0", 20, 5, 1, []),
        _event(f"{engine}ConvolutionBackward0", 30, 10, 0, []),
    ]
    (folder / "kineto.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    ends = {"comm_src": 0, "comm_dst": 1, "comm_tag": 3, "comm_size": 4096}
    sums = ChakraNode(id=9, name="sum", type="collective", attributes={"comm_type": 0, "comm_size": 10**6})
    for rank, kind in enumerate(("send", "receive")):
        nodes = [
            ChakraNode(id=1, name="work", type="compute", duration_us=20, attributes={"seconds": 2e-5}),
            ChakraNode(id=2, name="message", type=kind, after=(1,), attributes=ends),
            sums,
        ]
        write_chakra(folder / f"rank{rank}.et", nodes)
