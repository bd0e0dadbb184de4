"""ONNX files as graphs of one list of nodes: functions inlined, external weights left where they are."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from groundwork.errors import ConfigError
from groundwork.input_files import input_bytes

if TYPE_CHECKING:
    import onnx


_FILE_MIB = 2048
"""Largest file; protocol buffers cannot be larger."""
_DOMAINS = ("", "ai.onnx")


def loaded_onnx(path: Path) -> "onnx.ModelProto":
    """Return what an ONNX file holds.

    Raises:
        ConfigError: The package ``onnx`` is not installed, or the file is no ONNX file or is cut off.
    """
    if importlib.util.find_spec("onnx") is None:
        raise ConfigError("onnx must be installed to read ONNX files: pip install 'orrery-training[onnx]'")
    import onnx
    from google.protobuf.message import DecodeError

    content = input_bytes(path, "ONNX file", limit_mib=_FILE_MIB)
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError:
        raise ConfigError(f"ONNX file {path} is no protocol buffer of ONNX, or is cut off") from None
    if not model.graph.node or not model.opset_import:
        raise ConfigError(f"ONNX file {path} must hold a graph with nodes and the version of its operations")
    return _inlined(model, path) if model.functions else model


def _inlined(model: "onnx.ModelProto", path: Path) -> "onnx.ModelProto":
    """Return a model with the nodes of its functions in place of their calls."""
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except (RuntimeError, ValueError, TypeError) as error:
        text = " ".join(str(error).split())[:160]
        raise ConfigError(f"ONNX file {path} has functions that cannot be inlined: {text}") from None


def opset_of(model: "onnx.ModelProto", path: Path) -> int:
    """Return the version of the operations.

    Raises:
        ConfigError: It is missing, or newer than the installed package knows.
    """
    from onnx import defs

    version = next((row.version for row in model.opset_import if row.domain in _DOMAINS), 0)
    newest = defs.onnx_opset_version()
    if not 1 <= version <= newest:
        raise ConfigError(
            f"ONNX file {path} must use operations of a version from 1 to {newest}, which the installed onnx knows, "
            f"got {version}"
        )
    return int(version)
