from .trace_of_onnx import (
    trace_of_onnx as trace_of_onnx,
)
