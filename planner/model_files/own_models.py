"""Models that are no part of the catalogue: model files, exported programs, ONNX files, functions of a user's code."""

import re
from functools import lru_cache
from pathlib import Path

from groundwork.errors import ConfigError
from planner.graph.computation_graph import ComputationGraph
from planner.model_files.model_file import MODEL_SUFFIXES, read_model_file

_FUNCTION = re.compile(r"(?P<where>[A-Za-z_][\w.]*:[A-Za-z_]\w*)(?:@(?P<sizes>.*))?")
_LEAST_BATCH = 2
"""Samples with which a function's module is exported; normalisation over a batch needs two."""


def is_own_model(spec: str) -> bool:
    """Return whether a name is that of a file, or of a function of a user's code."""
    return _is_file(spec) or names_code(spec)


def names_code(spec: str) -> bool:
    """Return whether a name is that of a function of a user's code, which runs where the model is loaded."""
    return not _is_file(spec) and bool(_FUNCTION.fullmatch(spec))


def _is_file(spec: str) -> bool:
    """Return whether a name is that of a model file, an exported program or an ONNX file."""
    return Path(spec).suffix in (*MODEL_SUFFIXES, ".pt2", ".onnx")


def own_model(spec: str, *, batch: int, element_bytes: int = 4) -> ComputationGraph:
    """Return the network of a file or a function.

    Args:
        spec: Path of a file, or ``package.module:function@SIZES``, sizes of one sample of each input, separated by
            semicolons.
        batch: Samples in a mini-batch.
        element_bytes: Bytes of an element of a tensor: 2, 4 or 8.

    Raises:
        ConfigError: The file or the function breaks a rule, or element_bytes is none of 2, 4 and 8.
    """
    if Path(spec).suffix in MODEL_SUFFIXES:
        return read_model_file(Path(spec), name=spec, batch=batch, element_bytes=element_bytes)
    graph = _imported(spec, _stamp(spec)).with_batch(batch)
    return ComputationGraph(spec, batch, graph.layers, element_bytes=element_bytes)


def _stamp(spec: str) -> int:
    """Return when a file was changed; 0 for code."""
    try:
        return Path(spec).stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=8)
def _imported(spec: str, stamp: int) -> ComputationGraph:
    """Return the network of an exported program, an ONNX file or a function, with the batch of the export."""
    from planner.importing.graph_of import imported_graph
    from planner.tracing.exported import trace_of
    from planner.tracing.inputs import input_specs
    from planner.tracing.pt2_file import trace_of_pt2
    from planner.tracing.user_code import built_module

    del stamp  # a changed file is another program
    if Path(spec).suffix == ".pt2":
        return imported_graph(trace_of_pt2(Path(spec)), name=spec).graph
    if Path(spec).suffix == ".onnx":
        from planner.onnx_files.trace_of_onnx import trace_of_onnx

        return imported_graph(trace_of_onnx(Path(spec)), name=spec).graph
    match = _FUNCTION.fullmatch(spec)
    assert match is not None
    if not match["sizes"]:
        raise ConfigError(
            f"model {spec} must give the sizes of a sample of its input, such as {match['where']}@3x224x224, or be "
            f"written to a model file by orrery import"
        )
    named = (sizes.rpartition("=") for sizes in match["sizes"].split(";"))
    inputs = input_specs([f"{name}{equals}{_LEAST_BATCH}x{sizes}" for name, equals, sizes in named])
    return imported_graph(trace_of(built_module(match["where"]), inputs), name=spec).graph
